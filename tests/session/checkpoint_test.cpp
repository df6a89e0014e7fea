// Checkpoints come back as they were saved, or not at all.
#include "epipe/session/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/torch.h>
#include <unistd.h>

#include <fstream>

#include "epipe/base/file.h"
#include "support/temp_folder.h"
#include "support/train_run.h"

namespace epipe::session {
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
      EXPECT_EQ(all.verify().damaged, std::vector<std::uint64_t>{5}) << name << ", byte " << at;
      put(at, good[at]);
    }
    EXPECT_NO_THROW(all.load(5)) << name;
    EXPECT_EQ(all.verify().whole, std::vector<std::uint64_t>{5}) << name;
  }
}

TEST(Checkpoints, ThatMissAFileOrAreCutShortAreDamaged) {
  for (const char* const name : {"model.safetensors", "optimizer.safetensors", "encoders.safetensors", "checksums.txt"}) {
    const TempFolder folder;
    const Checkpoints all(folder.path());
    for (const std::uint64_t step : {10U, 20U}) all.save(some_checkpoint(step));
    const std::string path = folder.file(std::string("step-000000020/") + name);
    for (const bool missing : {false, true}) {
      ASSERT_EQ(missing ? ::unlink(path.c_str()) : ::truncate(path.c_str(), 9), 0);
      EXPECT_EQ(all.verify().whole, std::vector<std::uint64_t>{10}) << name;
      EXPECT_EQ(all.verify().damaged, std::vector<std::uint64_t>{20}) << name;
      EXPECT_EQ(all.steps(), (std::vector<std::uint64_t>{10, 20})) << "it was written to its end once";
    }
    all.save(some_checkpoint(20));
    EXPECT_EQ(all.verify().whole, (std::vector<std::uint64_t>{10, 20})) << "and may be written again";
  }
}

TEST(Checkpoints, AreTheirOwnersAloneWhateverTheUmask) {
  const TempFolder folder;
  const mode_t before = ::umask(0);
  Checkpoints(folder.file("run/checkpoints")).save(some_checkpoint(5));
  ::umask(before);
  const auto mode = [&](const std::string& name) {
    struct stat status {};
    EXPECT_EQ(::stat(folder.file("run/" + name).c_str(), &status), 0) << name;
    return status.st_mode & 0777U;
  };
  for (const char* const name : {"", "checkpoints", "checkpoints/step-000000005"}) EXPECT_EQ(mode(name), 0700U) << name;
  for (const char* const name : {"model.safetensors", "optimizer.safetensors", "encoders.safetensors", "checksums.txt"}) {
    EXPECT_EQ(mode(std::string("checkpoints/step-000000005/") + name), 0600U) << name;
  }
}

TEST(Checkpoints, ThatDoNotFitAreNotBegunAndLeaveTheOthersAsTheyWere) {
  const TempFolder folder;
  Checkpoints(folder.path()).save(some_checkpoint(10));
  std::uint64_t one = 0;
  for (const auto& [name, tensor] : some_checkpoint(20).model) one += tensor.nbytes();
  const Checkpoints limited(folder.path(), tree_bytes(folder.path()) + one);
  try {
    limited.save(some_checkpoint(20));
    FAIL() << "there is room for the model, but not for the optimizer";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("--state-quota"), std::string::npos) << error.what();
  }
  EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{"step-000000010"});
  EXPECT_EQ(limited.verify().whole, std::vector<std::uint64_t>{10});
  Checkpoints(folder.path(), 3 * tree_bytes(folder.path())).save(some_checkpoint(20));
}

}  // namespace
}  // namespace epipe::session
