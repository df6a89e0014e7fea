// epipe forward, epipe info --model and --weights, as a user calls them.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "epipe/data/npy.h"
#include "epipe/model/safetensors.h"
#include "epipe/model/weights.h"
#include "support/model_run.h"
#include "support/program.h"
#include "support/temp_folder.h"
#include "support/training.h"

namespace epipe::cli {
namespace {

using namespace epipe::testing;

// An .npy file of int64 or int32, as NumPy writes it.
template <typename T>
void write_integers(const std::string& path, const torch::Tensor& x) {
  std::string header = "{'descr': '<i" + std::to_string(sizeof(T)) + "', 'fortran_order': False, 'shape': (" + std::to_string(x.size(0)) +
                       ", " + std::to_string(x.size(1)) + "), }";
  header.append(117 - header.size(), ' ').push_back('\n');
  std::ofstream out(path, std::ios::binary);
  out << "\x93NUMPY\x01" << '\0' << static_cast<char>(header.size()) << '\0' << header;
  const torch::Tensor values = x.to(c10::CppTypeToScalarType<T>::value).contiguous();
  out.write(reinterpret_cast<const char*>(values.data_ptr<T>()), static_cast<std::streamsize>(values.nbytes()));
}

TEST(Forward, GivesTheModelsOutputsForImages) {
  const TempFolder folder;
  const data::DataSpec data{data::DataSpec::Kind::kImages, {3, 40, 40}, 7};
  const auto model = model::make_model("mobilenet_v2", data, 3);
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
  const auto model = model::make_model("transformer", kText, 3);
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
  const auto model = model::make_model("cnn", kImages, 3);
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
  const auto model = model::make_model("cnn", other, 3);
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
