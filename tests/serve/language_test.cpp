// LoRA of a language model on a server: the adapter of one process, killed servers included, and thin matrices alone come back.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "epipe/base/file.h"
#include "epipe/model/safetensors.h"
#include "serve/split.h"
#include "support/tiny_tokenizer.h"

namespace epipe::serve {
namespace {

using testing::Arguments;
using testing::file_bytes;
using testing::run_program;
using testing::Split;
using testing::operator+;

// A folder as Hugging Face has them, and text to adapt it to.
void make_files(const Split& split) {
  ASSERT_TRUE(make_folders(split.file("model")));
  std::ofstream(split.file("model/config.json"))
      << R"({"model_type": "qwen2", "vocab_size": 300, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 4,)"
      << R"("num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64, "tie_word_embeddings": true})";
  std::ofstream(split.file("model/tokenizer.json")) << testing::tiny_tokenizer().dump();
  std::ofstream text(split.file("text.txt"));
  for (int i = 0; i < 3000; ++i) text << "abc"[i % 3] << "xyz "[i * i % 4];
}

Arguments arguments(const Split& split) {
  return {"--model",
          "hf:" + split.file("model"),
          "--data",
          "text:" + split.file("text.txt"),
          "--max-length",
          "16",
          "--cuts",
          "block.1,block.3",
          "--place",
          "0,1,0",
          "--chunks",
          "2",
          "--batch",
          "16",
          "--optimizer",
          "adamw",
          "--lr",
          "0.01",
          "--epochs",
          "8",
          "--seed",
          "4",
          "--lora",
          "r=2,alpha=4,dropout=0.1",
          "--freeze",
          "0-1",
          "--codec",
          "ec:4",
          "--checkpoint-every",
          "5"};
}

std::string adapter_in(const std::string& run_dir) { return file_bytes(run_dir + "/adapter/adapter_model.safetensors"); }

std::size_t lines_in(const std::string& path) {
  const std::string text = file_bytes(path);
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

std::string expected_adapter(const Split& split) {
  const auto one = run_program("train --run-dir " + split.file("one") + " " + testing::joined(arguments(split)));
  EXPECT_EQ(one.code, 0) << one.output;
  return adapter_in(split.file("one"));
}

// Checkpoints have the thin matrices; what they are added to is beside them.
void expect_frozen_once(const std::string& checkpoints) {
  int frozen = 0;
  for (const std::string& name : list_folder(checkpoints)) {
    frozen += name.starts_with("frozen-") ? 1 : 0;
    if (!name.starts_with("step-")) continue;
    const auto file = model::read_safetensors(checkpoints + "/" + name + "/model.safetensors");
    ASSERT_TRUE(file.ok()) << file.error().text();
    for (const auto& [tensor, values] : file.value().tensors) EXPECT_NE(tensor.find("lora_"), std::string::npos) << tensor;
  }
  EXPECT_EQ(frozen, 1) << checkpoints;
}

TEST(LoraOnAServer, GivesTheAdapterOfOneProcess) {
  Split split(1);
  make_files(split);
  const std::string expected = expected_adapter(split);
  ASSERT_FALSE(expected.empty());
  split.start_server(0);
  const auto client = split.start_client(split.file("split"), arguments(split));
  ASSERT_EQ(client->wait(120), 0) << client->log();
  EXPECT_TRUE(adapter_in(split.file("split")) == expected);
  EXPECT_TRUE(file_bytes(split.file("split/model.safetensors")).empty()) << "the middle was not fetched";
}

TEST(LoraOnAServer, SurvivesTheDeathOfTheServer) {
  Split split(1);
  make_files(split);
  const std::string expected = expected_adapter(split);
  split.start_server(0);
  const auto client = split.start_client(split.file("split"), arguments(split));
  while (client->running() && lines_in(split.file("split/metrics.jsonl")) < 12) client->wait(0.01);
  ASSERT_TRUE(client->running()) << client->log();
  split.server(0).signal(SIGKILL);
  split.server(0).wait(10);
  expect_frozen_once(split.file("split/checkpoints"));
  const auto sessions = testing::sessions_in(split.file("server-0"));
  ASSERT_EQ(sessions.size(), 1U);
  expect_frozen_once(split.file("server-0/" + sessions[0] + "/checkpoints"));
  split.start_server(0);
  ASSERT_EQ(client->wait(120), 0) << client->log();
  EXPECT_TRUE(adapter_in(split.file("split")) == expected);
}

}  // namespace
}  // namespace epipe::serve
