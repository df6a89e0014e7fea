#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "epipe/model/safetensors.h"
#include "epipe/train/trainer.h"
#include "support/models.h"

// Whole runs within a test, and what they leave in their run directories.
namespace epipe::testing {

class Watcher final : public train::Observer {
 public:
  void on_step(const train::Progress& progress) override {
    if (stop_after != 0 && progress.step >= stop_after) stop = true;
  }
  void on_epoch(const train::EpochResult&) override {}
  void on_note(const std::string& text) override { notes.push_back(text); }

  std::uint64_t stop_after = 0;  // steps; 0: never
  std::atomic<bool> stop = false;
  std::vector<std::string> notes;
};

// All workers in this process.
inline train::TrainResult run(const train::TrainConfig& config, std::uint64_t stop_after = 0) {
  Watcher watcher;
  watcher.stop_after = stop_after;
  return train::train(registry(), config, watcher, watcher.stop);
}

// A run in which everything that belongs to a checkpoint changes.
inline train::TrainConfig small_run(const std::string& run_dir) {
  train::TrainConfig config;
  config.model = "cnn";
  config.batch = 16;
  config.run_dir = run_dir;
  config.seed = 5;
  config.momentum = 0.9;
  config.clip = 1;
  config.error_every = 0;
  return config;
}

inline model::NamedTensors tensors_in(const std::string& path) {
  auto file = model::read_safetensors(path);
  if (!file) throw std::runtime_error(file.error().message);
  return std::move(file).value().tensors;
}

inline model::NamedTensors weights_in(const std::string& run_dir) { return tensors_in(run_dir + "/model.safetensors"); }

inline void expect_equal(const model::NamedTensors& a, const model::NamedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(torch::equal(tensor, b.at(name))) << name;
}

inline void expect_equal_weights(const std::string& one_run_dir, const std::string& other_run_dir) {
  expect_equal(weights_in(one_run_dir), weights_in(other_run_dir));
}

// The lines of metrics.jsonl, all or those of a kind.
inline std::vector<nlohmann::json> metrics_in(const std::string& run_dir, const std::string& kind = "") {
  std::ifstream file(run_dir + "/metrics.jsonl");
  std::vector<nlohmann::json> all;
  for (std::string line; std::getline(file, line);) {
    if (auto parsed = nlohmann::json::parse(line); kind.empty() || parsed.at("kind") == kind) all.push_back(std::move(parsed));
  }
  return all;
}

}  // namespace epipe::testing
