// epipe forward, generate, eval and info of Hugging Face's folders, as a user calls them: against reference numbers, and with bad input.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "epipe/base/file.h"
#include "epipe/data/npy.h"
#include "epipe/model/registry.h"
#include "epipe/model/safetensors.h"
#include "epipe/model/weights.h"
#include "support/cuda.h"
#include "support/integer_file.h"
#include "support/program.h"
#include "support/shared.h"
#include "support/temp_folder.h"
#include "support/tiny_tokenizer.h"

namespace epipe::cli {
namespace {

using namespace epipe::testing;
using nlohmann::json;

// To the largest value of what is expected.
double relative(const torch::Tensor& got, const torch::Tensor& expected) {
  return (got - expected).abs().max().item<double>() / expected.abs().max().item<double>();
}

std::string prompt_file(const TempFolder& folder, const torch::Tensor& ids) {
  write_integers<std::int64_t>(folder.file("prompt.npy"), ids.view({1, -1}));
  return folder.file("prompt.npy");
}

class ReferenceFolder : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    model = shared(std::string("reference/lm/") + GetParam());
    EPIPE_SKIP_WITHOUT(model);
    auto read = model::read_safetensors(model + "/vectors.safetensors");
    ASSERT_TRUE(read.ok()) << read.error().text();
    vectors = std::move(read.value().tensors);
  }
  torch::Tensor forward(const std::string& more) const {
    write_integers<std::int64_t>(folder.file("ids.npy"), vectors.at("input_ids"));
    write_integers<std::int64_t>(folder.file("mask.npy"), vectors.at("attention_mask"));
    const auto run = run_program("forward --model 'hf:" + model + "' --input-ids ids.npy --attention-mask mask.npy --output y.npy " + more,
                                 folder.path());
    EXPECT_EQ(run.code, 0) << run.output;
    return data::read_npy(folder.file("y.npy")).value();
  }

  TempFolder folder;
  std::string model;
  model::NamedTensors vectors;
};

TEST_P(ReferenceFolder, ForwardGivesItsLogitsWithAndWithoutAnAdapter) {
  EXPECT_LT(relative(forward(""), vectors.at("logits")), 1e-5);
  EXPECT_LT(relative(forward("--batch 1 --adapter '" + model + "/adapter'"), vectors.at("lora_logits")), 1e-5);
}

TEST_P(ReferenceFolder, GenerateContinuesWithItsIds) {
  const auto greedy = vectors.at("greedy").view({-1});
  const std::string prompt = prompt_file(folder, greedy.narrow(0, 0, 8));
  const auto run = run_program("generate --model 'hf:" + model + "' --input-ids " + prompt + " --max-new-tokens 16 --ignore-end --json");
  ASSERT_EQ(run.code, 0) << run.output;
  const std::vector<std::int64_t> expected(greedy.data_ptr<std::int64_t>(), greedy.data_ptr<std::int64_t>() + greedy.numel());
  EXPECT_EQ(json::parse(run.output).at("ids").get<std::vector<std::int64_t>>(), expected);
}

TEST_P(ReferenceFolder, InfoCountsItsParameters) {
  const auto run = run_program("info --json --model 'hf:" + model + "'");
  ASSERT_EQ(run.code, 0) << run.output;
  std::int64_t parameters = 0;
  const auto weights = model::read_weights(model);
  ASSERT_TRUE(weights.ok()) << weights.error().text();
  for (const auto& [name, tensor] : weights.value()) parameters += tensor.numel();
  EXPECT_EQ(json::parse(run.output).at("parameters"), parameters);
}

INSTANTIATE_TEST_SUITE_P(Every, ReferenceFolder, ::testing::Values("gpt2_a", "llama_a", "qwen2_a", "qwen3_a"),
                         [](const auto& test) { return std::string(test.param); });

// A folder of a small GPT-2 with random weights, and the command's working directory.
class OwnFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(make_folders(folder.file("gpt2")));
    write("gpt2/config.json", config.dump());
    write("gpt2/tokenizer.json", tiny_tokenizer().dump());
    data::DataSpec spec;
    spec.kind = data::DataSpec::Kind::kText;
    spec.shape = {kPositions};
    weights = model::tensors_of(model::builtin_models().make_model("hf:" + folder.file("gpt2"), spec, 5));
    put(weights);
  }

  void write(const std::string& name, const std::string& text) const { std::ofstream(folder.file(name), std::ios::binary) << text; }
  void put(const model::NamedTensors& tensors) const {
    ASSERT_TRUE(model::write_safetensors(folder.file("gpt2/model.safetensors"), tensors));
  }
  void put_ids(const std::vector<std::int64_t>& ids) const {
    write_integers<std::int64_t>(folder.file("ids.npy"), torch::tensor(ids).view({1, -1}));
  }
  Outcome run(const std::string& arguments) const { return run_program(arguments, folder.path()); }
  Outcome forward(const std::string& more = "") const { return run("forward --model hf:gpt2 --input-ids ids.npy --output y.npy " + more); }
  Outcome generate(const std::string& more = "") const {
    return run("generate --model hf:gpt2 --input-ids ids.npy --max-new-tokens 2 --json " + more);
  }
  // Both commands end with this code and this message.
  void expect_both(int code, const std::string& message, const std::string& more = "") const {
    for (const Outcome& outcome : {forward(more), generate(more)}) {
      EXPECT_EQ(outcome.code, code) << outcome.output;
      EXPECT_NE(outcome.output.find(message), std::string::npos) << "expected: " << message << "\ngot: " << outcome.output;
    }
  }

  static constexpr std::int64_t kPositions = 32;
  static constexpr std::int64_t kVocabulary = 300;
  TempFolder folder;
  json config = {{"model_type", "gpt2"}, {"vocab_size", kVocabulary}, {"n_embd", 16}, {"n_layer", 2},
                 {"n_head", 2},          {"n_positions", kPositions}};
  model::NamedTensors weights;
};

TEST_F(OwnFolder, OfFewPositionsHasItsLayersListed) {
  const auto info = run("info --json --model hf:gpt2 --cuts block.1");
  ASSERT_EQ(info.code, 0) << info.output;
  EXPECT_EQ(json::parse(info.output)["layers"][0]["output_shapes"], json::parse("[[1, 32, 16]]")) << "as many tokens as it has positions";
  const auto fewer = run("info --json --model hf:gpt2 --shape 9");
  EXPECT_EQ(json::parse(fewer.output)["layers"][0]["output_shapes"], json::parse("[[1, 9, 16]]"));
  const auto more = run("info --model hf:gpt2 --shape 33");
  EXPECT_EQ(more.code, 2);
  EXPECT_NE(more.output.find("expected at most 32 tokens"), std::string::npos) << more.output;
}

TEST_F(OwnFolder, EvalHasTheLossOfTheLogitsOfForward) {
  const std::string text = "some text to read, xyz";
  ASSERT_TRUE(make_folders(folder.file("text/train")));
  ASSERT_TRUE(make_folders(folder.file("text/val")));
  write("text/train/a.txt", text);
  write("text/val/a.txt", text);
  std::vector<std::int64_t> ids;
  for (const char c : text) ids.push_back(3 + static_cast<unsigned char>(c));
  ids.push_back(261);  // end of text
  put_ids(ids);
  ASSERT_EQ(forward().code, 0);
  const auto logits = data::read_npy(folder.file("y.npy")).value()[0];
  const auto next = torch::tensor(ids).narrow(0, 1, static_cast<std::int64_t>(text.size()));
  const double loss = torch::nll_loss(torch::log_softmax(logits.narrow(0, 0, next.size(0)), -1), next).item<double>();
  const auto eval = run("eval --model hf:gpt2 --data text:text --max-length 32");
  ASSERT_EQ(eval.code, 0) << eval.output;
  const std::string said = "validation loss ";
  const auto at = eval.output.find(said);
  ASSERT_NE(at, std::string::npos) << eval.output;
  EXPECT_NEAR(std::stod(eval.output.substr(at + said.size())), loss, 2e-6) << eval.output;
}

TEST_F(OwnFolder, RunsOnTheDeviceThatIsNamed) {
  put_ids({5, 6, 7});
  const auto expected = generate();
  EXPECT_EQ(generate("--devices cpu").output, expected.output);
  ASSERT_EQ(forward().code, 0);
  const auto logits = data::read_npy(folder.file("y.npy")).value();
  EXPECT_EQ(forward("--devices cpu").code, 0);
  EXPECT_TRUE(torch::equal(data::read_npy(folder.file("y.npy")).value(), logits));
  expect_both(2, "expected cpu, cuda or cuda:N, got gpu", "--devices gpu");
  expect_both(2, "there are", "--devices cuda:99");
  write("text.txt", std::string(400, 'a'));
  const auto eval = run("eval --model hf:gpt2 --data text:text.txt --max-length 8 --devices cuda:99");
  EXPECT_EQ(eval.code, 2) << eval.output;
  EXPECT_NE(eval.output.find("cuda:99, but there are"), std::string::npos) << eval.output;
}

TEST_F(OwnFolder, GivesTheSameOnAGpu) {
  EPIPE_NEEDS_CUDA();
  put_ids({5, 6, 7});
  const auto expected = generate();
  EXPECT_EQ(generate("--devices cuda").output, expected.output);
  EXPECT_EQ(generate("--devices cuda --temperature 0.5").output, generate("--temperature 0.5").output);
  ASSERT_EQ(forward().code, 0);
  const auto logits = data::read_npy(folder.file("y.npy")).value();
  ASSERT_EQ(forward("--devices cuda").code, 0);
  EXPECT_LT((data::read_npy(folder.file("y.npy")).value() - logits).abs().max().item<float>(), 1e-4);
}

TEST_F(OwnFolder, GenerateTakesATextOrItsIds) {
  const auto ids = [](const Outcome& outcome) { return json::parse(outcome.output).at("ids").get<std::vector<std::int64_t>>(); };
  put_ids({3 + 'b', 3 + 'c'});
  const auto by_ids = generate("--ignore-end");
  ASSERT_EQ(by_ids.code, 0) << by_ids.output;
  const auto by_text = run("generate --model hf:gpt2 --prompt bc --max-new-tokens 2 --json --ignore-end");
  ASSERT_EQ(by_text.code, 0) << by_text.output;
  EXPECT_EQ(ids(by_text), ids(by_ids));
  EXPECT_EQ(ids(by_ids).size(), 4U);
  EXPECT_EQ(run("generate --model hf:gpt2 --prompt bc --input-ids ids.npy").code, 2);
  EXPECT_EQ(run("generate --model cnn --prompt bc").code, 2);
  ASSERT_TRUE(remove_tree(folder.file("gpt2/tokenizer.json")));
  const auto without = run("generate --model hf:gpt2 --prompt bc");
  EXPECT_EQ(without.code, 1);
  EXPECT_NE(without.output.find("tokenizer.json"), std::string::npos) << without.output;
  EXPECT_EQ(generate().code, 0) << "ids need none";
}

TEST_F(OwnFolder, ABadConfigIsNamedByEveryCommandWithTheSameCode) {
  put_ids({1, 1, 1, 1});
  const auto expect_all = [&](const std::string& message) {
    expect_both(2, message);
    for (const char* const command : {"info --model hf:gpt2", "eval --model hf:gpt2 --data text:gpt2/tokenizer.json --tokenizer gpt2",
                                      "train --model hf:gpt2 --data text:gpt2/tokenizer.json --tokenizer gpt2 --run-dir r"}) {
      const Outcome outcome = run(command);
      EXPECT_EQ(outcome.code, 2) << command << outcome.output;
      EXPECT_NE(outcome.output.find(message), std::string::npos) << command << ": " << outcome.output;
    }
  };
  write("gpt2/config.json", "{");
  expect_all("gpt2/config.json: expected a JSON object");
  write("gpt2/config.json", "{\"model_type\": 1}");
  expect_both(2, "gpt2/config.json: expected");
  const auto with = [&](const char* name, const json& value) {
    json changed = config;
    changed[name] = value;
    write("gpt2/config.json", changed.dump());
  };
  with("model_type", "mamba");
  expect_all("config.json: expected model_type gpt2, llama, qwen2");
  expect_all("got \"mamba\"");
  with("n_head", 3);
  expect_both(2, "3 heads do not divide 16 features");
  with("activation_function", "relu");
  expect_both(2, "expected activation_function \"gelu_new\", got \"relu\"");
  ASSERT_TRUE(remove_tree(folder.file("gpt2/config.json")));
  expect_all("cannot open gpt2/config.json: No such file or directory; hf: names a folder that save_pretrained()");
  ASSERT_TRUE(remove_tree(folder.file("gpt2")));
  expect_both(2, "expected a folder with config.json, got gpt2");
}

TEST_F(OwnFolder, TokensThatTheModelHasNotAreNamed) {
  put_ids({1, 2, kVocabulary});
  expect_both(1, "expected token ids from 0 to 299, got 300");
  put_ids({1, -2, 3});
  expect_both(1, "expected token ids from 0");
  put_ids({1, std::int64_t{1} << 40});
  expect_both(1, "expected token ids from 0 to 299, got 1099511627776");
  ASSERT_TRUE(data::write_npy(folder.file("ids.npy"), torch::ones({1, 3})));
  expect_both(1, "ids.npy: expected");
  ASSERT_TRUE(remove_tree(folder.file("ids.npy")));
  expect_both(1, "ids.npy");
}

TEST_F(OwnFolder, ATextLongerThanThePositionsIsRefused) {
  put_ids(std::vector<std::int64_t>(kPositions, 1));
  EXPECT_EQ(forward().code, 0) << "as long as may be";
  const auto full = generate();
  EXPECT_EQ(full.code, 1);
  EXPECT_NE(full.output.find("the prompt has 32 tokens and 2 are to follow, but the model has 32 positions; use a shorter prompt"),
            std::string::npos)
      << full.output;
  put_ids(std::vector<std::int64_t>(kPositions + 1, 1));
  const auto longer = forward();
  EXPECT_EQ(longer.code, 1);
  EXPECT_NE(longer.output.find("ids.npy: expected at most 32 tokens in a text, the positions of the model, got 33; cut the texts"),
            std::string::npos)
      << longer.output;
}

TEST_F(OwnFolder, WeightsThatDoNotFitAreNamed) {
  put_ids({1, 1, 1, 1});
  auto changed = weights;
  changed.erase("transformer.h.1.ln_1.weight");
  put(changed);
  expect_both(1, "\"transformer.h.1.ln_1.weight\": missing");
  changed = weights;
  changed["transformer.h.2.ln_1.weight"] = torch::ones({16});
  put(changed);
  expect_both(1, "\"transformer.h.2.ln_1.weight\": extra");
  changed = weights;
  changed["transformer.ln_f.bias"] = torch::ones({17});
  put(changed);
  expect_both(1, "\"transformer.ln_f.bias\": ");
  put(weights);
  const auto whole = read_file(folder.file("gpt2/model.safetensors"), 1 << 24).value();
  write("gpt2/model.safetensors", std::string(reinterpret_cast<const char*>(whole.data()), whole.size() - 3));
  expect_both(1, "gpt2/model.safetensors");
  ASSERT_TRUE(remove_tree(folder.file("gpt2/model.safetensors")));
  expect_both(1, "expected model.safetensors or model.safetensors.index.json in gpt2; neither is there");
}

// A run that cannot begin leaves no folder, whatever is wrong.
TEST_F(OwnFolder, NothingIsHalfWritten) {
  put_ids({1, 1, 1, 1});
  write("text.txt", std::string(400, 'a'));
  const auto expect_refused = [&](const std::string& message, const std::string& data = "text.txt") {
    for (const std::string& command : {"train --model hf:gpt2 --max-length 8 --run-dir r --data text:" + data,
                                       "eval --model hf:gpt2 --max-length 8 --data text:" + data}) {
      const Outcome outcome = run(command);
      EXPECT_EQ(outcome.code, 1) << outcome.output;
      EXPECT_NE(outcome.output.find(message), std::string::npos) << "expected: " << message << "\ngot: " << outcome.output;
      EXPECT_FALSE(is_folder(folder.file("r"))) << command;
    }
  };
  write("bytes.txt", "some \xff text");
  expect_refused("bytes.txt: expected UTF-8, got another byte at offset 5", "bytes.txt");
  write("lines.jsonl", "{\"text\": \"\xff\"}\n");
  expect_refused("lines.jsonl", "lines.jsonl");
  const auto tokens = run("data tokens --tokenizer gpt2 lines.jsonl");
  EXPECT_EQ(tokens.code, 1);
  EXPECT_NE(tokens.output.find("lines.jsonl:1: expected UTF-8, got another byte at offset 10"), std::string::npos) << tokens.output;
  const auto prompt = run("generate --model hf:gpt2 --prompt '\xff'");
  EXPECT_EQ(prompt.code, 1);
  EXPECT_NE(prompt.output.find("not UTF-8 at byte 0"), std::string::npos) << prompt.output;

  json tokenizer = tiny_tokenizer();
  tokenizer["pre_tokenizer"] = {{"type", "Metaspace"}};
  write("gpt2/tokenizer.json", tokenizer.dump());
  expect_refused("gpt2/tokenizer.json: pre_tokenizer: the type \"Metaspace\" is not supported; epipe has");
  write("gpt2/tokenizer.json", tiny_tokenizer().dump());

  auto changed = weights;
  changed.erase("transformer.h.1.ln_1.weight");
  changed["transformer.h.1.ln_9.weight"] = torch::ones({16});
  put(changed);
  const std::string named = "gpt2: the weights do not fit the model: \"transformer.h.1.ln_1.weight\": missing; \"transformer.h.1.ln_9.weight\": extra";
  expect_refused(named);
  expect_both(1, named);
  EXPECT_FALSE(read_file(folder.file("y.npy"), 1 << 20).ok());
}

TEST_F(OwnFolder, AShardThatIsTruncatedOrMissingIsNamed) {
  put_ids({1, 1, 1, 1});
  write("text.txt", std::string(400, 'a'));
  model::NamedTensors parts[2];
  json map = json::object();
  for (const auto& [name, tensor] : weights) {
    const int part = name.find("h.1.") != std::string::npos ? 1 : 0;
    parts[part][name] = tensor;
    map[name] = "part-" + std::to_string(part) + ".safetensors";
  }
  for (int part = 0; part < 2; ++part) {
    ASSERT_TRUE(model::write_safetensors(folder.file("gpt2/part-" + std::to_string(part) + ".safetensors"), parts[part]));
  }
  write("gpt2/model.safetensors.index.json", json{{"weight_map", map}}.dump());
  ASSERT_TRUE(remove_tree(folder.file("gpt2/model.safetensors")));
  expect_both(0, "");
  ASSERT_TRUE(remove_tree(folder.file("y.npy")));
  const auto expect_refused = [&](const std::string& message) {
    expect_both(1, message);
    const Outcome train = run("train --model hf:gpt2 --max-length 8 --run-dir r --data text:text.txt");
    EXPECT_EQ(train.code, 1) << train.output;
    EXPECT_NE(train.output.find(message), std::string::npos) << train.output;
    EXPECT_FALSE(is_folder(folder.file("r")));
    EXPECT_FALSE(read_file(folder.file("y.npy"), 1 << 20).ok());
  };
  const auto whole = read_file(folder.file("gpt2/part-1.safetensors"), 1 << 24).value();
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{5}, std::size_t{200}, whole.size() - 1}) {
    write("gpt2/part-1.safetensors", std::string(reinterpret_cast<const char*>(whole.data()), bytes));
    expect_refused("gpt2/part-1.safetensors");
  }
  ASSERT_TRUE(remove_tree(folder.file("gpt2/part-1.safetensors")));
  expect_refused("gpt2/model.safetensors.index.json names part-1.safetensors, which is not there; fetch it as well");
}

class OwnAdapter : public OwnFolder {
 protected:
  void SetUp() override {
    OwnFolder::SetUp();
    put_ids({1, 1, 1, 1});
    ASSERT_TRUE(make_folders(folder.file("adapter")));
    put_config(json::object());
    put_adapter({});
  }
  // What PEFT writes, with these fields instead.
  void put_config(const json& other) const {
    json fields = {{"peft_type", "LORA"}, {"r", 2},         {"lora_alpha", 4},
                   {"lora_dropout", 0},   {"bias", "none"}, {"target_modules", {"c_attn"}}};
    fields.update(other);
    write("adapter/adapter_config.json", fields.dump());
  }
  void put_adapter(const model::NamedTensors& more, const std::string& module = "transformer.h.0.attn.c_attn") const {
    const std::string prefix = "base_model.model." + module;
    model::NamedTensors tensors = {{prefix + ".lora_A.weight", torch::ones({2, 16})}, {prefix + ".lora_B.weight", torch::ones({48, 2})}};
    for (const auto& [name, tensor] : more) tensors[name] = tensor;
    ASSERT_TRUE(model::write_safetensors(folder.file("adapter/adapter_model.safetensors"), tensors));
  }
  void expect_refused(const std::string& message) const { expect_both(1, message, "--adapter adapter"); }
};

TEST_F(OwnAdapter, OfPlainLoraIsTaken) { expect_both(0, "", "--adapter adapter"); }

TEST_F(OwnAdapter, OfAnotherKindIsRefusedByTheNameOfItsOption) {
  for (const char* const option : {"use_dora", "use_rslora"}) {
    put_config({{option, true}});
    expect_refused(std::string("adapter/adapter_config.json: expected ") + option +
                   " false, got true; for an adapter that is not plain LoRA, merge it into the weights with PEFT's merge_and_unload()");
  }
  put_config({{"rank_pattern", {{"c_attn", 4}}}});
  expect_refused("expected no rank_pattern, got {\"c_attn\":4}");
  put_config({{"peft_type", "IA3"}});
  expect_refused("expected peft_type \"LORA\", got \"IA3\"");
  put_config({{"target_modules", "all-linear"}});
  expect_refused("expected target_modules to be a list");
}

TEST_F(OwnAdapter, ThatDoesNotFitTheModelIsRefused) {
  put_adapter({}, "transformer.h.7.attn.c_attn");
  expect_refused("\"transformer.h.7.attn.c_attn.lora_A.weight\": extra");
  put_adapter({{"base_model.model.transformer.h.0.attn.c_attn.lora_A.weight", torch::ones({3, 16})}});
  expect_refused("\"transformer.h.0.attn.c_attn.lora_A.weight\": ");
  put_adapter({{"c_attn.lora_A.weight", torch::ones({2, 16})}});
  expect_refused("expected names that begin with base_model.model., got \"c_attn.lora_A.weight\"");
  put_config({{"target_modules", {"q_proj"}}});
  put_adapter({});
  for (const Outcome& outcome : {forward("--adapter adapter"), generate("--adapter adapter")}) {
    EXPECT_NE(outcome.code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("q_proj"), std::string::npos) << outcome.output;
  }
  ASSERT_TRUE(remove_tree(folder.file("adapter/adapter_config.json")));
  expect_refused("adapter/adapter_config.json");
  ASSERT_TRUE(remove_tree(folder.file("adapter")));
  expect_refused("expected a folder with adapter_config.json, got adapter");
}

}  // namespace
}  // namespace epipe::cli
