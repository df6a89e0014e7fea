// Checkpoints come back as they were saved, or not at all.
#include "epipe/train/checkpoint.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>

#include "support/temp_folder.h"
#include "support/train_run.h"

namespace epipe::train {
namespace {

using testing::expect_equal;
using testing::TempFolder;

Checkpoint some_checkpoint(std::uint64_t step) {
  torch::manual_seed(static_cast<std::uint64_t>(step));
  return {step,
          {{"0.weight", torch::randn({3, 4})}, {"0.bias", torch::randn({3})}, {"1.count", torch::tensor({7})}},
          {{"0.weight.momentum", torch::randn({3, 4})}},
          {{"cut0/forward/p", torch::randn({5})}},
          "model=mlp"};
}

TEST(Checkpoints, ComeBackAsTheyWereSaved) {
  const TempFolder folder;
  const Checkpoints all(folder.path());
  for (const std::uint64_t step : {10U, 20U, 30U}) all.save(some_checkpoint(step));
  EXPECT_EQ(all.steps(), (std::vector<std::uint64_t>{20, 30}));
  const Checkpoint got = all.load(30);
  const Checkpoint expected = some_checkpoint(30);
  EXPECT_EQ(got.step, 30U);
  EXPECT_EQ(got.config, expected.config);
  expect_equal(got.model, expected.model);
  expect_equal(got.optimizer, expected.optimizer);
  expect_equal(got.encoders, expected.encoders);
}

// Whatever byte of whatever file.
TEST(Checkpoints, AreRefusedWhenAByteChanged) {
  const TempFolder folder;
  const Checkpoints all(folder.path());
  all.save(some_checkpoint(5));
  for (const char* const name : {"model.safetensors", "optimizer.safetensors", "encoders.safetensors", "checksums.txt"}) {
    const std::string path = folder.file(std::string("step-000000005/") + name);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const std::string good{std::istreambuf_iterator<char>(file), {}};
    ASSERT_FALSE(good.empty());
    const auto put = [&](std::size_t at, char byte) {
      file.clear();
      file.seekp(static_cast<std::streamoff>(at));
      file.put(byte).flush();
      ASSERT_TRUE(file);
    };
    for (std::size_t at = 0; at < good.size(); ++at) {
      put(at, static_cast<char>(good[at] ^ (1 << at % 8)));
      EXPECT_THROW(all.load(5), std::runtime_error) << name << ", byte " << at;
      put(at, good[at]);
    }
    EXPECT_NO_THROW(all.load(5)) << name;
  }
}

}  // namespace
}  // namespace epipe::train
