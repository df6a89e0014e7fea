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

std::shared_ptr<const NamedTensors> some_frozen(std::uint64_t seed) {
  torch::manual_seed(seed);
  return std::make_shared<const NamedTensors>(NamedTensors{{"2.weight", torch::randn({40, 40}).to(torch::kBFloat16)}});
}

Checkpoint with_frozen(std::uint64_t step, const std::shared_ptr<const NamedTensors>& frozen) {
  Checkpoint checkpoint = some_checkpoint(step);
  checkpoint.frozen = frozen;
  return checkpoint;
}

std::vector<std::string> frozen_folders(const std::string& folder) {
  std::vector<std::string> names;
  for (const std::string& name : list_folder(folder)) {
    if (name.starts_with("frozen-")) names.push_back(name);
  }
  return names;
}

ino_t file_number(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_ino;
}

TEST(Checkpoints, ComeBackAsTheyWereSaved) {
  const TempFolder folder;
  Checkpoints all(folder.path());
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

TEST(Checkpoints, ShareOneFileOfFrozenParameters) {
  const TempFolder folder;
  const auto frozen = some_frozen(1);
  Checkpoints all(folder.path());
  all.save(with_frozen(10, frozen));
  const auto names = frozen_folders(folder.path());
  ASSERT_EQ(names.size(), 1U);
  const std::string path = folder.file(names[0] + "/model.safetensors");
  const ino_t written = file_number(path);
  for (const std::uint64_t step : {20U, 30U}) all.save(with_frozen(step, frozen));
  Checkpoints of_another_process(folder.path());
  of_another_process.save(with_frozen(40, some_frozen(1)));
  EXPECT_EQ(frozen_folders(folder.path()), names);
  EXPECT_EQ(file_number(path), written) << "it was written once";
  for (const std::uint64_t step : {30U, 40U}) {
    const Checkpoint got = of_another_process.load(step);
    expect_equal(got.model, some_checkpoint(step).model);
    ASSERT_NE(got.frozen, nullptr);
    expect_equal(*got.frozen, *frozen);
    EXPECT_EQ(got.frozen->at("2.weight").scalar_type(), torch::kBFloat16);
  }
}

TEST(Checkpoints, KeepFrozenParametersForAsLongAsOneNamesThem) {
  const TempFolder folder;
  Checkpoints all(folder.path());
  all.save(with_frozen(10, some_frozen(1)));
  all.save(with_frozen(20, some_frozen(2)));
  EXPECT_EQ(frozen_folders(folder.path()).size(), 2U);
  expect_equal(*all.load(10).frozen, *some_frozen(1));
  expect_equal(*all.load(20).frozen, *some_frozen(2));
  all.save(with_frozen(30, some_frozen(2)));
  EXPECT_EQ(frozen_folders(folder.path()).size(), 1U) << "no checkpoint has the first ones";
  expect_equal(*all.load(20).frozen, *some_frozen(2));
  for (const std::uint64_t step : {40U, 50U}) all.save(some_checkpoint(step));
  EXPECT_TRUE(frozen_folders(folder.path()).empty());
  EXPECT_EQ(all.load(50).frozen, nullptr);
}

TEST(Checkpoints, WriteDamagedFrozenParametersAgain) {
  for (const bool missing : {false, true}) {
    const TempFolder folder;
    Checkpoints(folder.path()).save(with_frozen(10, some_frozen(1)));
    const std::string path = folder.file(frozen_folders(folder.path()).at(0) + "/model.safetensors");
    ASSERT_EQ(missing ? ::unlink(path.c_str()) : ::truncate(path.c_str(), 100), 0);
    Checkpoints all(folder.path());
    EXPECT_EQ(all.verify().damaged, std::vector<std::uint64_t>{10});
    all.save(with_frozen(20, some_frozen(1)));
    EXPECT_EQ(all.verify().whole, (std::vector<std::uint64_t>{10, 20})) << "the first one is whole again, too";
    expect_equal(*all.load(10).frozen, *some_frozen(1));
  }
  const TempFolder folder;
  Checkpoints all(folder.path());
  const auto frozen = some_frozen(1);
  all.save(with_frozen(10, frozen));
  for (const std::string& name : list_folder(folder.path())) ASSERT_TRUE(remove_tree(folder.file(name)));
  all.save(with_frozen(20, frozen));
  EXPECT_EQ(all.verify().whole, std::vector<std::uint64_t>{20}) << "somebody removed them while the run went on";
}

// Whatever byte of whatever file.
TEST(Checkpoints, AreRefusedWhenAByteChanged) {
  const TempFolder folder;
  Checkpoints all(folder.path());
  torch::manual_seed(3);
  all.save(with_frozen(5, std::make_shared<const NamedTensors>(NamedTensors{{"2.weight", torch::randn({3})}})));
  std::vector<std::string> files = {frozen_folders(folder.path()).at(0) + "/model.safetensors"};
  for (const char* const name : {"model.safetensors", "optimizer.safetensors", "encoders.safetensors", "checksums.txt"}) {
    files.push_back(std::string("step-000000005/") + name);
  }
  for (const std::string& name : files) {
    const std::string path = folder.file(name);
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
    Checkpoints all(folder.path());
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
  Checkpoints(folder.file("run/checkpoints")).save(with_frozen(5, some_frozen(1)));
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
  const std::string frozen = "checkpoints/" + frozen_folders(folder.file("run/checkpoints")).at(0);
  EXPECT_EQ(mode(frozen), 0700U);
  EXPECT_EQ(mode(frozen + "/model.safetensors"), 0600U);
}

TEST(Checkpoints, ThatDoNotFitAreNotBegunAndLeaveTheOthersAsTheyWere) {
  const TempFolder folder;
  Checkpoints(folder.path()).save(some_checkpoint(10));
  std::uint64_t one = 0;
  for (const auto& [name, tensor] : some_checkpoint(20).model) one += tensor.nbytes();
  Checkpoints limited(folder.path(), tree_bytes(folder.path()) + one);
  try {
    limited.save(some_checkpoint(20));
    FAIL() << "there is room for the model, but not for the optimizer";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("--state-quota"), std::string::npos) << error.what();
  }
  EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{"step-000000010"});
  EXPECT_EQ(limited.verify().whole, std::vector<std::uint64_t>{10});
  EXPECT_THROW(limited.save(with_frozen(20, some_frozen(1))), std::runtime_error);
  EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{"step-000000010"}) << "frozen parameters count, and are not written alone";
  Checkpoints(folder.path(), 3 * tree_bytes(folder.path())).save(some_checkpoint(20));
  Checkpoints roomy(folder.path(), 1 << 20);
  const auto frozen = some_frozen(1);
  roomy.save(with_frozen(30, frozen));
  const std::uint64_t kept = tree_bytes(folder.path());
  Checkpoints(folder.path(), kept + 1000).save(with_frozen(40, frozen));
}

}  // namespace
}  // namespace epipe::session
