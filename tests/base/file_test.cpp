// What a call wrote is there after a power failure, for the eyes it was meant for.
#include "epipe/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/temp_folder.h"

namespace epipe {
namespace {

// The system calls of this program that the tests look at, in their order: "sync PATH", "rename PATH", "make PATH".
struct SystemCalls {
  std::mutex mutex;
  std::vector<std::string> seen;
  bool fail_folder_syncs = false;

  void add(const std::string& call) {
    const std::lock_guard lock(mutex);
    seen.push_back(call);
  }
};

SystemCalls& calls() {
  static SystemCalls all;
  return all;
}

std::string path_of(int fd) {
  std::array<char, 4096> path{};
  const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path.data(), path.size());
  return {path.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
}

bool is_open_folder(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace
}  // namespace epipe

// In place of the C library's: they do the same and write it down.
extern "C" int fsync(int fd) {
  epipe::calls().add("sync " + epipe::path_of(fd));
  if (epipe::calls().fail_folder_syncs && epipe::is_open_folder(fd)) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  epipe::calls().add("rename " + std::string(to));
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

extern "C" int mkdir(const char* path, mode_t mode) noexcept {
  epipe::calls().add("make " + std::string(path));
  return static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}

namespace epipe {
namespace {

using Calls = std::vector<std::string>;

class File : public ::testing::Test {
 protected:
  File() { calls().seen.clear(); }
  ~File() override {
    calls().fail_folder_syncs = false;
    ::umask(umask_);
  }
  static ByteView bytes(std::string_view text) { return std::as_bytes(std::span(text)); }
  static unsigned mode(const std::string& path) {
    struct stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
    return status.st_mode & 0777U;
  }

  testing::TempFolder folder_;
  mode_t umask_ = ::umask(0);  // the least protection there is
};

TEST_F(File, IsOnTheDiskBeforeItHasItsNameAndItsNameBeforeTheCallReturns) {
  const std::string path = folder_.file("x");
  ASSERT_TRUE(write_file(path, {bytes("text")}));
  const std::string written = path + ".tmp" + std::to_string(::getpid());
  EXPECT_EQ(calls().seen, (Calls{"sync " + written, "rename " + path, "sync " + folder_.path()}));
}

TEST_F(File, RenamedBetweenFoldersIsOnTheDiskInBoth) {
  ASSERT_TRUE(make_folders(folder_.file("a")));
  ASSERT_TRUE(make_folders(folder_.file("b")));
  ASSERT_TRUE(write_file(folder_.file("a/x"), {bytes("text")}));
  calls().seen.clear();
  ASSERT_TRUE(rename_path(folder_.file("a/x"), folder_.file("b/x")));
  EXPECT_EQ(calls().seen, (Calls{"rename " + folder_.file("b/x"), "sync " + folder_.file("b"), "sync " + folder_.file("a")}));
}

TEST_F(File, FoldersThatAreMadeAreOnTheDisk) {
  ASSERT_TRUE(make_folders(folder_.file("a/b")));
  EXPECT_EQ(calls().seen,
            (Calls{"make " + folder_.file("a"), "sync " + folder_.path(), "make " + folder_.file("a/b"), "sync " + folder_.file("a")}));
  calls().seen.clear();
  ASSERT_TRUE(make_folders(folder_.file("a/b")));
  EXPECT_EQ(calls().seen, Calls{}) << "they were there";
}

TEST_F(File, AFolderThatCannotBeSyncedIsAnError) {
  ASSERT_TRUE(write_file(folder_.file("x"), {bytes("text")}));
  calls().fail_folder_syncs = true;
  for (const Result<void>& result : {write_file(folder_.file("y"), {bytes("text")}), write_private_file(folder_.file("z"), {bytes("text")}),
                                     rename_path(folder_.file("x"), folder_.file("w")), make_folders(folder_.file("f"))}) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().message, "cannot sync the folder " + folder_.path() + ": Input/output error");
  }
}

TEST_F(File, PrivateOnesAreTheirOwnersAloneWhateverTheUmask) {
  ASSERT_TRUE(write_private_file(folder_.file("secret"), {bytes("text")}));
  ASSERT_TRUE(write_file(folder_.file("shared"), {bytes("text")}));
  ASSERT_TRUE(make_private_folders(folder_.file("a/b")));
  ASSERT_TRUE(make_folders(folder_.file("c")));
  EXPECT_EQ(mode(folder_.file("secret")), 0600U);
  EXPECT_EQ(mode(folder_.file("shared")), 0666U);
  EXPECT_EQ(mode(folder_.file("a")), 0700U);
  EXPECT_EQ(mode(folder_.file("a/b")), 0700U);
  EXPECT_EQ(mode(folder_.file("c")), 0777U);
}

TEST_F(File, APrivateFileDoesNotTakeOverTheModeOfWhatWasThere) {
  const std::string path = folder_.file("x");
  ASSERT_TRUE(write_file(path, {bytes("old")}));
  ASSERT_TRUE(write_file(path + ".tmp" + std::to_string(::getpid()), {bytes("of a process that was killed")}));
  ASSERT_TRUE(write_private_file(path, {bytes("new")}));
  EXPECT_EQ(mode(path), 0600U);
}

TEST_F(File, ComesInPiecesAsItIs) {
  std::string text(3'000'001, 'a');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 2654435761U >> 9U);
  ASSERT_TRUE(write_file(folder_.file("x"), {bytes(text)}));
  std::string got;
  ASSERT_TRUE(
      read_pieces(folder_.file("x"), [&](ByteView piece) { got.append(reinterpret_cast<const char*>(piece.data()), piece.size()); }));
  EXPECT_TRUE(got == text);
  EXPECT_FALSE(read_pieces(folder_.file("missing"), [](ByteView) { FAIL(); }));
  EXPECT_FALSE(read_pieces(folder_.path(), [](ByteView) { FAIL(); }));
}

TEST_F(File, AFolderIsLockedUntilTheLockGoes) {
  {
    const auto lock = FolderLock::take(folder_.file("a"));
    ASSERT_TRUE(lock);
    const auto second = FolderLock::take(folder_.file("a"));
    ASSERT_FALSE(second);
    EXPECT_NE(second.error().message.find("another process is at work in " + folder_.file("a")), std::string::npos);
  }
  EXPECT_TRUE(FolderLock::take(folder_.file("a")));
}

// A server that clears up, and the session whose folder it is.
TEST_F(File, AFolderThatTwoRemoveAtOnceIsGoneForBoth) {
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(make_folders(folder_.file("a/b/c")));
    for (int i = 0; i < 50; ++i) {
      for (const char* const folder : {"a/", "a/b/", "a/b/c/"}) std::ofstream(folder_.file(folder + std::to_string(i))) << i;
    }
    std::array<Result<void>, 2> removed;
    std::thread other([&] { removed[1] = remove_tree(folder_.file("a")); });
    removed[0] = remove_tree(folder_.file("a"));
    other.join();
    for (const auto& result : removed) EXPECT_TRUE(result) << result.error().message;
    EXPECT_NE(::access(folder_.file("a").c_str(), F_OK), 0);
  }
  EXPECT_TRUE(remove_tree(folder_.file("a"))) << "fine where nothing is";
  EXPECT_FALSE(remove_tree("/proc/self/status"));
}

TEST_F(File, AFoldersBytesAreThoseOfAllItsFiles) {
  ASSERT_TRUE(make_folders(folder_.file("a/b")));
  ASSERT_TRUE(write_file(folder_.file("a/x"), {bytes("12345")}));
  ASSERT_TRUE(write_file(folder_.file("a/b/y"), {bytes("123")}));
  EXPECT_EQ(tree_bytes(folder_.file("a")), 8U);
  EXPECT_EQ(tree_bytes(folder_.file("missing")), 0U);
}

}  // namespace
}  // namespace epipe
