// epipe data, and training on data of one's own, as a user calls them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "support/program.h"
#include "support/temp_folder.h"
#include "support/tiny_bpe.h"
#include "support/tiny_tokenizer.h"

namespace epipe::cli {
namespace {

using nlohmann::json;
using testing::Outcome;

class DataCommand : public ::testing::Test {
 protected:
  Outcome run(const std::string& arguments) const { return testing::run_program(arguments, folder_.path()); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_.file(name), std::ios::binary) << text; }
  void make_folder(const std::string& name) const { ASSERT_EQ(std::system(("mkdir -p " + folder_.file(name)).c_str()), 0); }
  void write_bpe() const {
    make_folder("roberta-bpe");
    write("roberta-bpe/vocab.json", testing::tiny_vocab());
    write("roberta-bpe/merges.txt", testing::tiny_merges());
  }
  void write_cifar10() const {
    make_folder("cifar");
    for (int file = 1; file <= 6; ++file) {
      std::string text;
      for (int i = 0; i < 30; ++i) {  // bright planes tell the classes apart
        text += static_cast<char>(i % 3);
        for (int c = 0; c < 3; ++c) text += std::string(1024, static_cast<char>(c == i % 3 ? 200 + file : i));
      }
      write(file == 6 ? "cifar/test_batch.bin" : fmt::format("cifar/data_batch_{}.bin", file), text);
    }
  }
  // The last line of a run's metrics.
  json last_metrics(const std::string& run) const {
    std::ifstream file(folder_.file(run + "/metrics.jsonl"));
    std::string last;
    for (std::string line; std::getline(file, line);) last = line;
    return json::parse(last);
  }
  std::string content(const std::string& name) const {
    std::ifstream file(folder_.file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  testing::TempFolder folder_;
};

TEST_F(DataCommand, PrintsTheTokensOfTextsAndPairs) {
  write_bpe();
  write("texts.jsonl", "{\"text\": \"aab\"}\n\n{\"pair\": [\"ab\", \"\\u00e9\"]}\n{\"text\": \"\"}\n");
  const Outcome tokens = run("data tokens --bpe roberta-bpe texts.jsonl");
  EXPECT_EQ(tokens.code, 0);
  EXPECT_EQ(tokens.output, "[0, 259, 101, 2]\n[0, 260, 2, 2, 198, 172, 2]\n[0, 2]\n");
}

TEST_F(DataCommand, PrintsTheTokensOfATokenizerFileAndTheirTexts) {
  make_folder("tok");
  write("tok/tokenizer.json", testing::tiny_pair_tokenizer().dump());
  write("texts.jsonl", "{\"text\": \"aab\"}\n\n{\"pair\": [\"ab\", \"\\u00e9\"]}\n{\"text\": \"\"}\n");
  EXPECT_EQ(run("data tokens --tokenizer tok texts.jsonl").output, "[259, 101]\n[260, 198, 172]\n[]\n");
  EXPECT_EQ(run("data tokens --tokenizer tok/tokenizer.json --special texts.jsonl").output,
            "[0, 259, 101, 2]\n[0, 260, 2, 198, 172, 2]\n[0, 2]\n");
  write("ids.jsonl", "[259, 101, 261]\n[]\n");
  EXPECT_EQ(run("data tokens --tokenizer tok --decode ids.jsonl").output, "{\"text\":\"aab\"}\n{\"text\":\"\"}\n");
  EXPECT_EQ(run("data tokens --tokenizer tok --decode --special ids.jsonl").output, "{\"text\":\"aab<|endoftext|>\"}\n{\"text\":\"\"}\n");
}

TEST_F(DataCommand, WrongTokenizersAndUsageAreErrors) {
  make_folder("tok");
  nlohmann::json file = testing::tiny_tokenizer();
  file["model"]["type"] = "Unigram";
  write("tok/tokenizer.json", file.dump());
  write("texts.jsonl", "{\"text\": \"a\"}\n");
  const Outcome lacking = run("data tokens --tokenizer tok texts.jsonl");
  EXPECT_EQ(lacking.code, 1);
  EXPECT_NE(lacking.output.find("tok/tokenizer.json: model: the type \"Unigram\" is not supported"), std::string::npos) << lacking.output;
  EXPECT_EQ(run("data tokens --tokenizer absent texts.jsonl").code, 1);
  EXPECT_EQ(run("data tokens --tokenizer tok --bpe tok texts.jsonl").code, 2);
  EXPECT_EQ(run("data tokens --bpe tok --special texts.jsonl").code, 2);
  write("tok/tokenizer.json", testing::tiny_tokenizer().dump());
  write("ids.jsonl", "[1.5]\n");
  const Outcome ids = run("data tokens --tokenizer tok --decode ids.jsonl");
  EXPECT_EQ(ids.code, 1);
  EXPECT_NE(ids.output.find("ids.jsonl:1: expected a JSON array of ids"), std::string::npos) << ids.output;
}

TEST_F(DataCommand, NamesTheLineThatIsWrong) {
  write_bpe();
  for (const std::string line : {"{\"text\": 1}", "{\"pair\": [\"a\"]}", "[]", "{\"text\": \"a", "{}"}) {
    write("texts.jsonl", "{\"text\": \"a\"}\n" + line + "\n");
    const Outcome tokens = run("data tokens --bpe roberta-bpe texts.jsonl");
    EXPECT_EQ(tokens.code, 1);
    EXPECT_NE(tokens.output.find("texts.jsonl:2: expected"), std::string::npos) << tokens.output;
  }
  EXPECT_EQ(run("data tokens --bpe absent texts.jsonl").code, 1);
  EXPECT_EQ(run("data tokens --bpe roberta-bpe absent.jsonl").code, 1);
  EXPECT_EQ(run("data tokens texts.jsonl").code, 2);
}

TEST_F(DataCommand, MissingDataNamesTheCommandToRun) {
  const Outcome train = run("train --model cnn --data cifar10:none --run-dir a");
  EXPECT_EQ(train.code, 1);
  EXPECT_NE(train.output.find("run `epipe data cifar10 none`"), std::string::npos) << train.output;
  EXPECT_EQ(run("train --model cnn --data nonsense --run-dir a").code, 2);
  EXPECT_EQ(run("train --model cnn --image-size 64 --run-dir a").code, 2);
  EXPECT_EQ(run("data cifar10 x --from absent").code, 1);
}

TEST_F(DataCommand, TrainsOnCifarWhateverTheLoadThreads) {
  write_cifar10();
  const std::string base = "train --model cnn --data cifar10:cifar --image-size 16 --batch 32 --epochs 2 --lr 0.02 ";
  ASSERT_EQ(run(base + "--load-threads 1 --run-dir a").code, 0);
  ASSERT_EQ(run(base + "--load-threads 5 --run-dir b").code, 0);
  EXPECT_EQ(content("a/model.safetensors"), content("b/model.safetensors"));
  ASSERT_EQ(run(base + "--no-augment --run-dir c").code, 0);
  EXPECT_NE(content("a/model.safetensors"), content("c/model.safetensors"));
  EXPECT_NE(content("c/config.toml").find("augment = \"none\""), std::string::npos);
  EXPECT_NE(content("c/config.toml").find("image-size = 16"), std::string::npos);
  const Outcome repeated = run("train --config c/config.toml --run-dir d");
  ASSERT_EQ(repeated.code, 0) << repeated.output;
  EXPECT_EQ(content("c/model.safetensors"), content("d/model.safetensors"));
  const json metrics = last_metrics("a");
  EXPECT_EQ(metrics["metric"], "accuracy");
  EXPECT_EQ(metrics["val_metric"], metrics["val_accuracy"]);
}

TEST_F(DataCommand, ResumesOnlyWithTheSameData) {
  write_cifar10();
  const std::string base = "train --model cnn --data cifar10:cifar --batch 32 --epochs 2 --lr 0.02 ";
  ASSERT_EQ(run(base + "--run-dir whole").code, 0);
  ASSERT_EQ(run(base + "--run-dir a --max-steps 3").code, 0);
  const Outcome other = run(base + "--run-dir a --resume --augment resized-crop");
  EXPECT_EQ(other.code, 2) << other.output;
  EXPECT_NE(other.output.find("--augment: resized-crop here, auto there"), std::string::npos) << other.output;
  ASSERT_EQ(run(base + "--run-dir a --resume --max-steps 0").code, 0);
  EXPECT_EQ(content("a/model.safetensors"), content("whole/model.safetensors"));
}

TEST_F(DataCommand, ReportsTheMetricOfATask) {
  write_bpe();
  make_folder("CoLA");
  make_folder("STS-B");
  std::string cola;
  std::string stsb = "sentence1\tsentence2\tscore\n";
  for (int i = 0; i < 40; ++i) {
    cola += "x\t" + std::to_string(i % 2) + "\t\t" + (i % 2 == 0 ? "aa bb" : "cc dd") + " " + std::to_string(i) + "\n";
    stsb += std::string(i % 2 == 0 ? "aa" : "cc") + "\tb\t" + std::to_string(i % 5) + "." + std::to_string(i % 10) + "\n";
  }
  for (const char* const file : {"train.tsv", "dev.tsv"}) {
    write(std::string("CoLA/") + file, cola);
    write(std::string("STS-B/") + file, stsb);
  }
  const std::string flags = " --max-length 16 --batch 16 --epochs 1 --optimizer adamw --lr 0.003 --place 0,1 --run-dir ";
  const Outcome first = run("train --model transformer --data glue/CoLA:." + flags + "a");
  ASSERT_EQ(first.code, 0) << first.output;
  EXPECT_EQ(last_metrics("a")["metric"], "matthews");
  EXPECT_TRUE(last_metrics("a")["val_metrics"].contains("accuracy"));
  const Outcome second = run("train --model transformer --data glue/sts-b:." + flags + "b");
  ASSERT_EQ(second.code, 0) << second.output;
  EXPECT_EQ(last_metrics("b")["metric"], "pearson");
  EXPECT_TRUE(last_metrics("b")["val_metrics"].contains("spearman"));
  EXPECT_GT(last_metrics("b")["val_loss"].get<double>(), 0);
  const Outcome eval = run("eval --model transformer --data glue/cola:. --max-length 16 --weights a/model.safetensors");
  EXPECT_EQ(eval.code, 0) << eval.output;
  EXPECT_NE(eval.output.find("matthews "), std::string::npos) << eval.output;
}

}  // namespace
}  // namespace epipe::cli
