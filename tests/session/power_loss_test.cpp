// The machine loses its power at any moment of a save: what is left of the disk holds a whole checkpoint, which the real code finds.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <optional>
#include <span>

#include "epipe/base/file.h"
#include "epipe/session/checkpoint.h"
#include "support/disk_log.h"
#include "support/temp_folder.h"
#include "support/train_run.h"

namespace epipe::session {
namespace {

using testing::Disk;
using testing::DiskCall;
using testing::expect_equal;
using testing::TempFolder;
using Kind = DiskCall::Kind;

// The calls of this program below `root`; none where that is empty.
struct Recorder {
  std::string root;
  std::vector<DiskCall> calls;

  // The path below the root.
  std::optional<std::string> below(const std::string& path) const {
    if (root.empty() || !path.starts_with(root)) return std::nullopt;
    if (path == root) return "";
    return path[root.size()] == '/' ? std::optional(path.substr(root.size() + 1)) : std::nullopt;
  }
  std::optional<std::string> below(int fd) const {
    std::array<char, 4096> path{};
    const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path.data(), path.size());
    return below(std::string(path.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0))));
  }
  void note(const std::string& text) { calls.push_back({Kind::kNote, text}); }
};

Recorder& recorder() {
  static Recorder one;
  return one;
}

bool is_open_folder(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
}

long removed(const char* path, int flags) {
  const auto below = recorder().below(path);
  const long result = ::syscall(SYS_unlinkat, AT_FDCWD, path, flags);
  if (result == 0 && below) recorder().calls.push_back({Kind::kRemove, *below});
  return result;
}

}  // namespace
}  // namespace epipe::session

// In place of the C library's: they do the same and write it down.
extern "C" int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  auto& recorder = epipe::session::recorder();
  const auto below = (flags & O_CREAT) != 0 ? recorder.below(std::string(path)) : std::nullopt;
  const bool is_new = below && ::access(path, F_OK) != 0;
  const int fd = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
  if (fd >= 0 && is_new) recorder.calls.push_back({epipe::testing::DiskCall::Kind::kCreate, *below});
  return fd;
}

extern "C" ssize_t write(int fd, const void* data, size_t size) {
  auto& recorder = epipe::session::recorder();
  const auto below = recorder.root.empty() ? std::nullopt : recorder.below(fd);
  if (below) {  // in two halves, so that files end within a write as well
    const std::string bytes(static_cast<const char*>(data), size);
    for (const std::string& half : {bytes.substr(0, size / 2), bytes.substr(size / 2)}) {
      recorder.calls.push_back({epipe::testing::DiskCall::Kind::kWrite, *below, {}, half});
    }
  }
  return ::syscall(SYS_write, fd, data, size);
}

extern "C" int fsync(int fd) {
  auto& recorder = epipe::session::recorder();
  if (const auto below = recorder.below(fd)) {
    const bool folder = epipe::session::is_open_folder(fd);
    recorder.calls.push_back({folder ? epipe::testing::DiskCall::Kind::kSyncFolder : epipe::testing::DiskCall::Kind::kSyncFile, *below});
  }
  return 0;  // nothing is lost here
}

extern "C" int rename(const char* from, const char* to) noexcept {
  auto& recorder = epipe::session::recorder();
  const auto below = recorder.below(std::string(from));
  const long result = ::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
  if (result == 0 && below) recorder.calls.push_back({epipe::testing::DiskCall::Kind::kRename, *below, *recorder.below(std::string(to))});
  return static_cast<int>(result);
}

extern "C" int mkdir(const char* path, mode_t mode) noexcept {
  auto& recorder = epipe::session::recorder();
  const long result = ::syscall(SYS_mkdirat, AT_FDCWD, path, mode);
  const auto below = recorder.below(std::string(path));
  if (result == 0 && below) recorder.calls.push_back({epipe::testing::DiskCall::Kind::kMakeFolder, *below});
  return static_cast<int>(result);
}

extern "C" int unlink(const char* path) noexcept { return static_cast<int>(epipe::session::removed(path, 0)); }

extern "C" int remove(const char* path) noexcept {
  const long file = epipe::session::removed(path, 0);
  return static_cast<int>(file == 0 || (errno != EISDIR && errno != EPERM) ? file : epipe::session::removed(path, AT_REMOVEDIR));
}

namespace epipe::session {
namespace {

Checkpoint checkpoint_of(std::uint64_t step, std::int64_t values) {
  torch::manual_seed(step);
  return {step, {{"weight", torch::randn({values})}}, {{"momentum", torch::randn({3, 4})}}, {{"cut0/forward/p", torch::randn({5})}}, "m"};
}

// Those of two runs: the second begins anew in the folder of the first.
Checkpoint with_frozen(std::uint64_t step, std::uint64_t run) {
  Checkpoint checkpoint = checkpoint_of(step, 8);
  torch::manual_seed(run);
  checkpoint.frozen = std::make_shared<const NamedTensors>(NamedTensors{{"embedding", torch::randn({30})}});
  return checkpoint;
}

// Calls `work` with a folder, and returns what it asked of the disk.
template <typename Work>
std::vector<DiskCall> recorded(const Work& work) {
  const TempFolder folder;
  recorder() = {folder.path(), {}};
  work(folder.path());
  std::vector<DiskCall> calls = std::move(recorder().calls);
  recorder() = {};
  return calls;
}

// Every moment, and everything that may be lost then.
template <typename Check>
void at_every_power_loss(const std::vector<DiskCall>& calls, const Check& check) {
  for (std::size_t count = 0; count <= calls.size(); ++count) {
    for (const auto& [loss, times] :
         {std::pair{Disk::Loss::kAllUnsynced, 1}, {Disk::Loss::kUnsyncedData, 1}, {Disk::Loss::kNothing, 1}, {Disk::Loss::kSome, 4}}) {
      for (int seed = 0; seed < times; ++seed) {
        const TempFolder after;
        Disk(calls, count, loss, count * 16 + static_cast<std::size_t>(seed)).write_to(after.path());
        check(after.path(), count);
        if (::testing::Test::HasFatalFailure() || ::testing::Test::HasNonfatalFailure()) {
          FAIL() << "after " << count << " of " << calls.size() << " calls, loss " << static_cast<int>(loss) << ", seed " << seed;
        }
      }
    }
  }
}

TEST(PowerLoss, LeavesAWholeCheckpointWhateverWasLost) {
  const std::vector<std::uint64_t> steps = {10, 20, 30, 40};
  const auto calls = recorded([&](const std::string& folder) {
    for (const std::uint64_t step : steps) {
      Checkpoints(folder + "/checkpoints").save(checkpoint_of(step, 200));
      recorder().note("saved " + std::to_string(step));
    }
  });
  ASSERT_GT(calls.size(), 100U) << "the recorder sees the calls";
  at_every_power_loss(calls, [&](const std::string& folder, std::size_t count) {
    std::uint64_t saved = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (calls[i].kind == Kind::kNote) saved = std::stoull(calls[i].path.substr(6));
    }
    const Checkpoints left(folder + "/checkpoints");
    const CheckpointList list = left.verify();
    EXPECT_TRUE(list.damaged.empty()) << "a checkpoint has its name when all of it is on the disk";
    if (saved == 0 && list.whole.empty()) return;
    ASSERT_FALSE(list.whole.empty());
    EXPECT_GE(list.whole.back(), saved) << "what was saved is there";
    for (const std::uint64_t step : list.whole) {
      const Checkpoint got = left.load(step);
      const Checkpoint expected = checkpoint_of(step, 200);
      expect_equal(got.model, expected.model);
      expect_equal(got.optimizer, expected.optimizer);
      expect_equal(got.encoders, expected.encoders);
    }
  });
}

TEST(PowerLoss, LeavesAFolderThatTheNextCheckpointGoesInto) {
  const auto calls = recorded([&](const std::string& folder) {
    for (const std::uint64_t step : {1U, 2U, 3U}) Checkpoints(folder + "/c").save(checkpoint_of(step, 8));
  });
  at_every_power_loss(calls, [&](const std::string& folder, std::size_t) {
    Checkpoints again(folder + "/c");
    again.save(checkpoint_of(4, 8));
    EXPECT_EQ(again.verify().whole.back(), 4U);
    EXPECT_EQ(list_folder(folder + "/c").size(), again.steps().size()) << "nothing unfinished stays";
  });
}

TEST(PowerLoss, LeavesFrozenParametersBesideEachCheckpointThatNamesThem) {
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> saves = {{1, 1}, {1, 2}, {2, 2}, {3, 2}};  // step, run
  const auto calls = recorded([&](const std::string& folder) {
    for (const auto& [step, run] : saves) {
      Checkpoints(folder + "/c").save(with_frozen(step, run));
      recorder().note("saved");
    }
  });
  at_every_power_loss(calls, [&](const std::string& folder, std::size_t count) {
    const auto saved = std::count_if(calls.begin(), calls.begin() + static_cast<std::ptrdiff_t>(count),
                                     [](const DiskCall& call) { return call.kind == Kind::kNote; });
    Checkpoints left(folder + "/c");
    const CheckpointList list = left.verify();
    EXPECT_TRUE(list.damaged.empty()) << "its frozen parameters are on the disk before it has its name";
    EXPECT_TRUE(saved <= 1 || !list.whole.empty()) << "the second one takes the place of the only one";
    for (const std::uint64_t step : list.whole) {
      const Checkpoint got = left.load(step);
      ASSERT_NE(got.frozen, nullptr);
      const bool first = torch::equal(got.frozen->at("embedding"), with_frozen(step, 1).frozen->at("embedding"));
      expect_equal(*got.frozen, *with_frozen(step, first ? 1 : 2).frozen);
    }
    left.save(with_frozen(9, 3));
    const auto names = list_folder(folder + "/c");
    const auto frozen = std::count_if(names.begin(), names.end(), [](const std::string& name) { return name.starts_with("frozen-"); });
    EXPECT_EQ(names.size(), left.steps().size() + static_cast<std::size_t>(frozen)) << "nothing unfinished stays";
    EXPECT_LE(frozen, 2) << "nothing unused stays";
    EXPECT_EQ(left.verify().whole.back(), 9U);
  });
}

// A step that is replayed is saved again under the same name.
TEST(PowerLoss, WhileACheckpointIsReplacedLeavesTheOneBeforeIt) {
  const auto calls = recorded([&](const std::string& folder) {
    for (const std::uint64_t step : {1U, 2U}) Checkpoints(folder + "/c").save(checkpoint_of(step, 8));
    recorder().note("again");
    Checkpoints(folder + "/c").save(checkpoint_of(2, 8));
  });
  at_every_power_loss(calls, [&](const std::string& folder, std::size_t count) {
    bool again = false;
    for (std::size_t i = 0; i < count; ++i) again = again || calls[i].kind == Kind::kNote;
    const CheckpointList list = Checkpoints(folder + "/c").verify();
    EXPECT_TRUE(list.damaged.empty());
    EXPECT_TRUE(!again || (!list.whole.empty() && list.whole.front() == 1U));
  });
}

TEST(PowerLoss, LeavesTheOldFileOrTheNewOneAndNoPart) {
  const std::string old_text(300, 'o');
  const std::string new_text(500, 'n');
  const auto calls = recorded([&](const std::string& folder) {
    ASSERT_TRUE(write_private_file(folder + "/usage.json", {std::as_bytes(std::span(old_text))}));
    recorder().note("first");
    ASSERT_TRUE(write_private_file(folder + "/usage.json", {std::as_bytes(std::span(new_text))}));
    recorder().note("second");
  });
  at_every_power_loss(calls, [&](const std::string& folder, std::size_t count) {
    int written = 0;
    for (std::size_t i = 0; i < count; ++i) written += calls[i].kind == Kind::kNote ? 1 : 0;
    const auto bytes = read_file(folder + "/usage.json", 1000);
    if (!bytes) {
      EXPECT_EQ(written, 0);
      return;
    }
    const std::string text(reinterpret_cast<const char*>(bytes.value().data()), bytes.value().size());
    EXPECT_TRUE(text == new_text || (text == old_text && written < 2)) << text.size() << " bytes";
  });
}

// The tests themselves: code that forgets to sync is found out.
TEST(PowerLoss, IsNoticedWhereSomethingWasNotSynced) {
  const auto calls = recorded([&](const std::string& folder) {
    for (const std::uint64_t step : {1U, 2U}) Checkpoints(folder + "/c").save(checkpoint_of(step, 8));
  });
  const auto left_without = [&](Kind kind) {
    std::vector<DiskCall> careless = calls;
    std::erase_if(careless, [kind](const DiskCall& call) { return call.kind == kind; });
    const TempFolder after;
    Disk(careless, careless.size(), Disk::Loss::kAllUnsynced, 0).write_to(after.path());
    return Checkpoints(after.file("c")).verify();
  };
  EXPECT_EQ(left_without(Kind::kNote).whole.size(), 2U);
  EXPECT_EQ(left_without(Kind::kSyncFile).damaged.size(), 2U) << "their names are there, their bytes are not";
  EXPECT_TRUE(left_without(Kind::kSyncFolder).whole.empty()) << "nor are their names";
}

}  // namespace
}  // namespace epipe::session
