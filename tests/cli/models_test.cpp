// epipe forward, epipe info --model and --weights, as a user calls them.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "epipe/data/npy.h"
#include "epipe/model/safetensors.h"
#include "epipe/model/weights.h"
#include "support/bad_sample.h"
#include "support/integer_file.h"
#include "support/model_run.h"
#include "support/program.h"
#include "support/script_modules.h"
#include "support/temp_folder.h"
#include "support/training.h"

namespace epipe::cli {
namespace {

using namespace epipe::testing;

TEST(Forward, GivesTheModelsOutputsForImages) {
  const TempFolder folder;
  const data::DataSpec data{data::DataSpec::Kind::kImages, {3, 40, 40}, 7};
  const auto model = make_model("mobilenet_v2", data, 3);
  const auto batch = random_batch(data, 5, 1);
  ASSERT_TRUE(model::write_safetensors(folder.file("w"), model::tensors_of(model)));
  ASSERT_TRUE(data::write_npy(folder.file("x.npy"), batch.inputs[0]));
  const auto run =
      run_program("forward --model mobilenet_v2 --weights w --input x.npy --output y.npy --batch 2 --threads 1", folder.path());
  ASSERT_EQ(run.code, 0) << run.output;
  EXPECT_EQ(run.output, "[5, 7] written to y.npy\n");
  const auto y = data::read_npy(folder.file("y.npy"));
  ASSERT_TRUE(y.ok());
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(torch::allclose(y.value(), forward(model, batch, false), 1e-5, 1e-6));
}

TEST(Forward, GivesTheModelsOutputsForText) {
  const TempFolder folder;
  const auto model = make_model("transformer", kText, 3);
  const auto batch = random_batch(kText, 4, 1);
  ASSERT_TRUE(model::write_safetensors(folder.file("w"), model::tensors_of(model)));
  write_integers<std::int64_t>(folder.file("ids.npy"), batch.inputs[0]);
  write_integers<std::int32_t>(folder.file("mask.npy"), batch.side[0]);
  const std::string common = "forward --model transformer --weights w --input-ids ids.npy --output y.npy ";
  ASSERT_EQ(run_program(common + "--attention-mask mask.npy", folder.path()).code, 0);
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(torch::allclose(data::read_npy(folder.file("y.npy")).value(), forward(model, batch, false), 1e-5, 1e-6));
  ASSERT_EQ(run_program(common, folder.path()).code, 0);
  auto all = batch;
  all.side[0].fill_(1);
  EXPECT_TRUE(torch::allclose(data::read_npy(folder.file("y.npy")).value(), forward(model, all, false), 1e-5, 1e-6))
      << "no mask: every token";
  write_integers<std::int32_t>(folder.file("mask.npy"), batch.side[0].narrow(1, 0, 3));
  const auto wrong = run_program(common + "--attention-mask mask.npy", folder.path());
  EXPECT_EQ(wrong.code, 1);
  EXPECT_NE(wrong.output.find("mask.npy: expected the shape of the token ids"), std::string::npos) << wrong.output;
}

TEST(Forward, SaysWhatIsWrong) {
  const TempFolder folder;
  const auto model = make_model("cnn", kImages, 3);
  auto weights = model::tensors_of(model);
  weights["extra.weight"] = torch::zeros({1});
  weights.erase("features.2.conv.weight");
  ASSERT_TRUE(model::write_safetensors(folder.file("w"), weights));
  ASSERT_TRUE(data::write_npy(folder.file("x.npy"), torch::randn({2, 3, 12, 12})));
  const auto expect = [&](const std::string& arguments, int code, const std::string& message) {
    const auto run = run_program("forward " + arguments + " --output y.npy", folder.path());
    EXPECT_EQ(run.code, code) << run.output;
    EXPECT_NE(run.output.find(message), std::string::npos) << run.output;
  };
  expect("--model cnn --weights w --input x.npy", 1, "\"extra.weight\": extra; \"features.2.conv.weight\": missing");
  expect("--model cnn --weights nowhere --input x.npy", 1, "nowhere");
  expect("--model cnn --weights x.npy --input x.npy", 1, "x.npy");
  expect("--model cnn --weights w --input nowhere.npy", 1, "nowhere.npy");
  expect("--model cnn --weights w", 2, "give --input for images, or --input-ids for text");
  expect("--model transformer --weights w --input x.npy", 2, "give --input-ids");
  expect("--model cnm --weights w --input x.npy", 2, "known are mlp, cnn");
}

TEST(Info, ListsLayersAndStages) {
  const auto run = run_program("info --model resnet18 --shape 3,64,64 --classes 10 --cuts layer1.0,9 --json");
  ASSERT_EQ(run.code, 0) << run.output;
  const auto info = nlohmann::json::parse(run.output);
  EXPECT_EQ(info.at("parameters"), 11'181'642);
  ASSERT_EQ(info.at("layers").size(), 10U);
  EXPECT_EQ(info["layers"][1]["name"], "layer1.0");
  EXPECT_EQ(info["layers"][1]["parameters"], 73'984);
  ASSERT_EQ(info.at("stages").size(), 3U);
  EXPECT_EQ(info["stages"][1]["first"], "layer1.0");
  EXPECT_EQ(info["stages"][1]["output_shapes"], nlohmann::json::parse("[[1, 512, 2, 2]]"));
  EXPECT_EQ(info["stages"][2]["parameters"], 5130);
  double flops = 0;
  for (const auto& stage : info["stages"]) flops += stage["flops"].get<double>();
  EXPECT_DOUBLE_EQ(flops, info["flops"].get<double>());
  EXPECT_NE(run_program("info --model resnet18 --shape 3,64,64 --cuts 1,5").output.find("layer3.0"), std::string::npos);
  EXPECT_EQ(run_program("info --model resnet18 --cuts 5,1").code, 2);
  EXPECT_EQ(run_program("info --model resnet18 --cuts 10").code, 2);
  EXPECT_EQ(run_program("info --model resnet18 --cuts stern").code, 2);
  EXPECT_EQ(run_program("info --model resnet19").code, 2);
}

TEST(Weights, StartARunAndANewHeadIsSaid) {
  const TempFolder folder;
  const data::DataSpec other{data::DataSpec::Kind::kImages, {3, 16, 16}, 3};
  const auto model = make_model("cnn", other, 3);
  ASSERT_TRUE(model::write_safetensors(folder.file("w"), model::tensors_of(model)));
  const std::string train = "train --model cnn --weights w --max-steps 1 --batch 16 --lr 0 --cuts 1,3 --run-dir ";
  const auto run = run_program(train + "run", folder.path());
  ASSERT_EQ(run.code, 0) << run.output;
  EXPECT_NE(run.output.find("start fresh, the weights have none that fit: classifier.linear.bias, classifier.linear.weight"),
            std::string::npos)
      << run.output;
  const auto written = model::read_weights(folder.file("run/model.safetensors"));
  ASSERT_TRUE(written.ok());
  EXPECT_TRUE(torch::equal(written.value().at("features.0.conv.weight"), model::tensors_of(model).at("features.0.conv.weight")));
  EXPECT_EQ(written.value().at("classifier.linear.weight").size(0), 10);
  EXPECT_EQ(run_program("eval --model cnn --weights run/model.safetensors", folder.path()).code, 0);
  EXPECT_EQ(run_program("eval --model cnn --weights w", folder.path()).code, 1) << "its head does not fit the data";
  // The file is part of the run's configuration, and a resumed run does not need it.
  EXPECT_EQ(run_program("train --config run/config.toml --run-dir again", folder.path()).code, 0);
  ASSERT_EQ(std::remove(folder.file("w").c_str()), 0);
  EXPECT_EQ(run_program("train --config run/config.toml --max-steps 2 --resume", folder.path()).code, 0);
}

// npy:data of 6 features: classes, or so many values per sample.
void write_features(const TempFolder& folder, std::int64_t classes, std::int64_t values = 0) {
  ASSERT_EQ(::mkdir(folder.file("data").c_str(), 0777), 0);
  torch::manual_seed(11);
  for (const std::string part : {"train", "val"}) {
    ASSERT_TRUE(data::write_npy(folder.file("data/" + part + "_x.npy"), torch::randn({16, 6})));
    const std::string y = folder.file("data/" + part + "_y.npy");
    if (values > 0) {
      ASSERT_TRUE(data::write_npy(y, torch::randn({16, values})));
    } else {
      write_labels(y, torch::arange(16, torch::kInt64) % classes);
    }
  }
}

TEST(TorchScript, ForwardAndTrainComputeWhatItsOwnForwardDoes) {
  for (const std::string source : {kChain, kOwnForward}) {
    const TempFolder folder;
    write_features(folder, 3);
    auto module = script_module(source);
    module.save(folder.file("m.pt"));
    const auto x = data::read_npy(folder.file("data/train_x.npy")).value();
    const torch::NoGradGuard no_grad;
    const auto expected = module.forward({x}).toTensor();
    const auto forward = run_program("forward --model torchscript:m.pt --input data/train_x.npy --output y.npy --threads 1", folder.path());
    ASSERT_EQ(forward.code, 0) << forward.output;
    EXPECT_TRUE(torch::equal(data::read_npy(folder.file("y.npy")).value(), expected)) << source;
    const auto train =
        run_program("train --model torchscript:m.pt --data npy:data --batch 16 --no-shuffle --max-steps 1 --run-dir r", folder.path());
    ASSERT_EQ(train.code, 0) << train.output;
    std::ifstream metrics(folder.file("r/metrics.jsonl"));
    std::string line;
    ASSERT_TRUE(std::getline(metrics, line));
    const auto loss = torch::nll_loss(torch::log_softmax(expected, -1), torch::arange(16, torch::kInt64) % 3).item<double>();
    EXPECT_NEAR(nlohmann::json::parse(line).at("loss").get<double>(), loss, 1e-4 * loss) << source;
  }
}

TEST(TorchScript, ACutInsideAModuleWithItsOwnForwardIsRefusedWithTheReason) {
  const TempFolder folder;
  write_features(folder, 3);
  script_module(kOwnForward).save(folder.file("own.pt"));
  script_module(kChain).save(folder.file("chain.pt"));
  const std::string train = "train --data npy:data --batch 16 --max-steps 1 --run-dir r --model torchscript:";
  for (const std::string cut : {"own.pt --cuts 1", "own.pt --cuts b", "own.pt --place 0,1,0"}) {
    const auto refused = run_program(train + cut, folder.path());
    EXPECT_EQ(refused.code, 2) << cut << refused.output;
    EXPECT_NE(refused.output.find("is one layer and cannot be cut: its forward has aten::relu between its children"), std::string::npos)
        << refused.output;
    EXPECT_NE(::access(folder.file("r").c_str(), F_OK), 0) << cut;
  }
  EXPECT_EQ(run_program("info --model torchscript:own.pt --shape 6 --cuts 1", folder.path()).code, 2);
  EXPECT_EQ(run_program(train + "chain.pt --cuts b,2 --place 0,1,0", folder.path()).code, 0);
}

TEST(TorchScript, TrainsOnlyWithAsManyOutputsAsTheDataHas) {
  const auto run = [](const std::string& source, std::int64_t outputs, std::int64_t classes, std::int64_t values) {
    const TempFolder folder;
    write_features(folder, classes, values);
    script_module(source, outputs).save(folder.file("m.pt"));
    const auto outcome =
        run_program("train --model torchscript:m.pt --data npy:data --batch 16 --lr 1e-5 --max-steps 1 --run-dir r", folder.path());
    EXPECT_EQ(::access(folder.file("r").c_str(), F_OK) == 0, outcome.code == 0) << outcome.output;
    return outcome;
  };
  const auto more = run(kChain, 10, 3, 0);
  EXPECT_EQ(more.code, 2) << more.output;
  EXPECT_NE(more.output.find(
                "expected one tensor Float [1, 3] from torchscript:m.pt for one sample, as npy:data has 3 classes; got Float [1, 10]"),
            std::string::npos)
      << more.output;
  EXPECT_EQ(run(kChain, 2, 3, 0).code, 2) << "fewer";
  EXPECT_EQ(run(kChain, 3, 3, 0).code, 0);
  EXPECT_EQ(run(kOwnForward, 10, 3, 0).code, 2) << "one layer";
  EXPECT_EQ(run(kOwnForward, 3, 3, 0).code, 0);
  EXPECT_EQ(run(kChain, 4, 0, 4).code, 0) << "regression";
  EXPECT_EQ(run(kChain, 3, 0, 4).code, 2) << "regression";
  const auto shape = run("return self.c.forward(self.b.forward(self.a.forward(torch.cat([x, x], 1))))", 3, 3, 0);
  EXPECT_EQ(shape.code, 2) << shape.output;
  EXPECT_NE(shape.output.find("fails on the first sample of npy:data, of shape [6]"), std::string::npos) << shape.output;
}

TEST(TorchScript, AModuleWithoutWeightsIsNotTrained) {
  const TempFolder folder;
  write_features(folder, 6);
  torch::jit::Module frozen("Net");
  frozen.define("def forward(self, x):\n  return x * 2\n");
  frozen.save(folder.file("m.pt"));
  const auto refused = run_program("train --model torchscript:m.pt --data npy:data --max-steps 1 --run-dir r", folder.path());
  EXPECT_EQ(refused.code, 2) << refused.output;
  EXPECT_NE(refused.output.find("expected weights to train in torchscript:m.pt, got none"), std::string::npos) << refused.output;
}

TEST(LearnedCodec, IsTrainedSavedAndEvaluated) {
  const TempFolder folder;
  const std::string stages = "--model cnn --cuts 1,3 --place 0,1,0 --batch 32 --codec 'conv:8x2>uniform:8' ";
  const auto run = run_program("train " + stages + "--max-steps 2 --run-dir run", folder.path());
  ASSERT_EQ(run.code, 0) << run.output;
  const auto written = model::read_weights(folder.file("run/model.safetensors"));
  ASSERT_TRUE(written.ok());
  EXPECT_EQ(written.value().at("codec.features.1.encode.0.weight").sizes(), (std::vector<std::int64_t>{8, 16, 2, 2}));
  EXPECT_EQ(run_program("eval " + stages + "--weights run/model.safetensors", folder.path()).code, 0);
  EXPECT_EQ(run_program("train --config run/config.toml --max-steps 3 --resume", folder.path()).code, 0);
  const auto wrong = run_program("train " + stages + "--codec-at 1:backward=linear:4 --run-dir other", folder.path());
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.output.find("cut 1: linear:4 is layers around the cut"), std::string::npos) << wrong.output;
}

}  // namespace
}  // namespace epipe::cli
