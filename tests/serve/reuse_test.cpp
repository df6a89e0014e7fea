// --reuse-activations: the second epoch sends names, and ends with the weights of a run that sends everything again, whoever is killed.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "epipe/base/file.h"
#include "serve/split.h"
#include "support/tiny_tokenizer.h"

namespace epipe::serve {
namespace {

using testing::Arguments;
using testing::file_bytes;
using testing::run_program;
using testing::Split;
using testing::operator+;

void make_language_files(const Split& split, double dropout = 0) {
  ASSERT_TRUE(make_folders(split.file("model")));
  std::ofstream(split.file("model/config.json"))
      << R"({"model_type": "gpt2", "vocab_size": 300, "n_embd": 16, "n_layer": 4, "n_head": 2, "n_positions": 64, "embd_pdrop": )"
      << dropout << R"(, "attn_pdrop": 0, "resid_pdrop": 0})";
  std::ofstream(split.file("model/tokenizer.json")) << testing::tiny_tokenizer().dump();
  std::ofstream text(split.file("text.txt"));
  for (int i = 0; i < 3000; ++i) text << "abc"[i % 3] << "xyz "[i * i % 4];
}

Arguments reusing(const Split& split) {
  return {"--model",
          "hf:" + split.file("model"),
          "--data",
          "text:" + split.file("text.txt"),
          "--cuts",
          "block.1,block.3",
          "--place",
          "0,1,0",
          "--chunks",
          "2",
          "--batch",
          "16",
          "--lr",
          "0.01",
          "--epochs",
          "8",
          "--seed",
          "4",
          "--optimizer",
          "adamw",
          "--lora",
          "r=2,alpha=4,dropout=0.1",
          "--freeze",
          "0-1",
          "--codec",
          "ec:4",
          "--checkpoint-every",
          "5",
          "--max-length",
          "16",
          "--reuse-activations"};
}

std::string adapter_of(const std::string& run_dir) { return file_bytes(run_dir + "/adapter/adapter_model.safetensors"); }

// What the first cut carried forward in each epoch of training.
std::vector<std::uint64_t> first_cut_bytes(const std::string& run_dir) {
  std::vector<std::uint64_t> epochs;
  std::ifstream lines(run_dir + "/metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const auto step = nlohmann::json::parse(line);
    if (step["kind"] != "step") continue;
    epochs.resize(std::max(epochs.size(), step["epoch"].get<std::size_t>() + 1));
    for (const auto& cut : step["cuts"]) {
      if (cut["cut"] == 0 && cut["direction"] == "forward") epochs.back() += cut["wire_bytes"].get<std::uint64_t>();
    }
  }
  return epochs;
}

std::size_t steps_in(const std::string& run_dir) {
  const std::string text = file_bytes(run_dir + "/metrics.jsonl");
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

// The adapter of a run whose server keeps nothing.
std::string sent_again(Split& split) {
  split.start_server(0, {"--reuse-quota", "0"});
  const auto client = split.start_client(split.file("again"), reusing(split));
  EXPECT_EQ(client->wait(120), 0) << client->log();
  const auto bytes = first_cut_bytes(split.file("again"));
  EXPECT_EQ(bytes.size(), 8U);
  EXPECT_GT(bytes.back() * 10, bytes.front() * 9) << "everything is sent again";
  split.server(0).signal(SIGTERM);
  split.server(0).wait(20);
  return adapter_of(split.file("again"));
}

TEST(ReusedActivations, CrossOnceAndChangeNoBit) {
  Split split(1);
  make_language_files(split);
  const std::string expected = sent_again(split);
  ASSERT_FALSE(expected.empty());
  split.start_server(0);
  const auto client = split.start_client(split.file("run"), reusing(split));
  ASSERT_EQ(client->wait(120), 0) << client->log();
  EXPECT_TRUE(adapter_of(split.file("run")) == expected);
  const auto bytes = first_cut_bytes(split.file("run"));
  for (std::size_t epoch = 1; epoch < bytes.size(); ++epoch) EXPECT_LT(bytes[epoch] * 3, bytes[0]) << epoch;
}

TEST(ReusedActivations, SurviveTheDeathOfTheServerAndOfTheClient) {
  Split split(1);
  make_language_files(split);
  const std::string expected = sent_again(split);
  split.start_server(0);
  auto client = split.start_client(split.file("run"), reusing(split));
  while (client->running() && steps_in(split.file("run")) < 30) client->wait(0.01);
  ASSERT_TRUE(client->running()) << client->log();
  split.server(0).signal(SIGKILL);
  split.server(0).wait(10);
  split.start_server(0);
  while (client->running() && steps_in(split.file("run")) < 60) client->wait(0.01);
  ASSERT_TRUE(client->running()) << client->log();
  client->signal(SIGKILL);
  client->wait(10);
  client = split.start_client(split.file("run"), reusing(split) + Arguments{"--resume"});
  ASSERT_EQ(client->wait(120), 0) << client->log();
  EXPECT_TRUE(adapter_of(split.file("run")) == expected);
}

// Audits of the other cut's rates run through the first one, whose frames are those of the training.
TEST(ReusedActivations, ChangeNoBitWhereAnotherCutChoosesItsRates) {
  Split split(1);
  make_language_files(split);
  const Arguments open = {"--codec-at", "1:forward=auto", "--codec-at", "1:backward=auto", "--audit-share", "1"};
  split.start_server(0, {"--reuse-quota", "0"});
  const auto again = split.start_client(split.file("again"), reusing(split) + open);
  ASSERT_EQ(again->wait(120), 0) << again->log();
  split.server(0).signal(SIGTERM);
  split.server(0).wait(20);
  split.start_server(0);
  const auto client = split.start_client(split.file("run"), reusing(split) + open);
  ASSERT_EQ(client->wait(120), 0) << client->log();
  EXPECT_TRUE(adapter_of(split.file("run")) == adapter_of(split.file("again")));
  EXPECT_NE(file_bytes(split.file("run/metrics.jsonl")).find("\"kind\":\"audit\""), std::string::npos);
  const auto sent = first_cut_bytes(split.file("again"));
  const auto bytes = first_cut_bytes(split.file("run"));
  ASSERT_EQ(bytes.size(), sent.size());
  for (std::size_t epoch = 1; epoch < bytes.size(); ++epoch) EXPECT_LT(bytes[epoch] * 3, sent[epoch]) << epoch;
}

TEST(ReusedActivations, DamagedOnTheDiskAreAskedForAgain) {
  Split split(1);
  make_language_files(split);
  const std::string expected = sent_again(split);
  split.start_server(0);
  const auto client = split.start_client(split.file("run"), reusing(split));
  while (client->running() && steps_in(split.file("run")) < 30) client->wait(0.01);
  ASSERT_TRUE(client->running()) << client->log();
  for (const std::string& name : list_folder(split.file("server-0"))) {
    std::fstream file(split.file("server-0/" + name + "/activations"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(32 + 90);
    file.write("damaged", 7);
  }
  ASSERT_EQ(client->wait(120), 0) << client->log();
  EXPECT_NE(client->log().find("connected again, going on after step"), std::string::npos) << client->log();
  EXPECT_TRUE(adapter_of(split.file("run")) == expected);
}

TEST(ReusedActivations, AreTheServersAloneAndGoWithTheRun) {
  Split split(1);
  make_language_files(split);
  split.start_server(0);
  const auto client = split.start_client(split.file("run"), reusing(split));
  ASSERT_EQ(client->wait(120), 0) << client->log();
  for (const std::string& name : list_folder(split.file("server-0"))) {
    EXPECT_FALSE(read_file(split.file("server-0/" + name + "/activations"), 1 << 30)) << "the run has ended";
  }
}

TEST(ReusedActivations, AreRefusedWhereTheFrontIsNotConstant) {
  Split split(1);
  make_language_files(split, 0.1);
  const auto said = [&](const Arguments& arguments) {
    const auto done =
        run_program("train --connect 127.0.0.1:1 --insecure --run-dir " + split.file("no") + " " + testing::joined(arguments));
    EXPECT_EQ(done.code, 2) << done.output;
    return done.output;
  };
  EXPECT_NE(said(reusing(split)).find("embedding draws random numbers, as dropout does"), std::string::npos);
  make_language_files(split);
  Arguments trained = reusing(split);
  std::replace(trained.begin(), trained.end(), std::string("0-1"), std::string("0"));
  EXPECT_NE(said(trained).find("layer 1 before it is trained; --freeze"), std::string::npos);
  Arguments learned = reusing(split);
  std::replace(learned.begin(), learned.end(), std::string("ec:4"), std::string("linear:8"));
  EXPECT_NE(said(learned).find("linear:8 has layers before it"), std::string::npos);
  EXPECT_NE(said(reusing(split) + Arguments{"--follow-link"}).find("expected one rate for all activations"), std::string::npos);
  EXPECT_NE(said(reusing(split) + Arguments{"--rate-changes", "4:3,3,3,3"}).find("expected one rate for all activations"),
            std::string::npos);
  EXPECT_NE(said(reusing(split) + Arguments{"--audit"}).find("--audit codes some at a higher one"), std::string::npos);
  const auto alone = run_program("train --run-dir " + split.file("no") + " " + testing::joined(reusing(split)));
  EXPECT_EQ(alone.code, 2);
  EXPECT_NE(alone.output.find("use it with --connect"), std::string::npos) << alone.output;
}

}  // namespace
}  // namespace epipe::serve
