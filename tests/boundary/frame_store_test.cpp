#include "epipe/boundary/frame_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "epipe/base/file.h"
#include "support/temp_folder.h"

namespace epipe::boundary {
namespace {

Bytes frame_of(std::size_t bytes, int value) { return {bytes, static_cast<std::byte>(value)}; }

class FrameStore_ : public ::testing::Test {
 protected:
  std::string path() const { return folder_.file("activations"); }
  std::uint64_t bytes() const { return read_file(path(), 1 << 20).value().size(); }
  void change_byte(std::uint64_t at) const {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char old = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(old ^ 0x40));
  }

  testing::TempFolder folder_;
};

TEST_F(FrameStore_, GivesBackWhatItKeepsAlsoAfterItWasOpenedAgain) {
  for (int round = 0; round < 2; ++round) {
    FrameStore store(path(), 1 << 20);
    if (round == 0) {
      EXPECT_TRUE(store.keep({7, 100}, frame_of(50, 1)));
      EXPECT_TRUE(store.keep({8, 200}, frame_of(60, 2)));
    }
    EXPECT_EQ(store.find({7, 100}), frame_of(50, 1));
    EXPECT_EQ(store.find({8, 200}), frame_of(60, 2));
    EXPECT_EQ(store.held().size(), 2U);
  }
}

TEST_F(FrameStore_, HasNothingUnderAnotherTagOrWhenItWasForgotten) {
  FrameStore store(path(), 1 << 20);
  ASSERT_TRUE(store.keep({7, 100}, frame_of(50, 1)));
  EXPECT_EQ(store.find({7, 101}), std::nullopt);
  EXPECT_EQ(store.find({6, 100}), std::nullopt);
  store.forget(7);
  EXPECT_EQ(store.find({7, 100}), std::nullopt);
  EXPECT_TRUE(store.held().empty());
}

TEST_F(FrameStore_, TakesTheLaterOneOfTwoAlsoAfterItWasOpenedAgain) {
  for (int round = 0; round < 2; ++round) {
    FrameStore store(path(), 1 << 20);
    if (round == 0) {
      ASSERT_TRUE(store.keep({7, 100}, frame_of(50, 1)) && store.keep({7, 101}, frame_of(40, 2)));
    }
    EXPECT_EQ(store.find({7, 101}), frame_of(40, 2));
    EXPECT_EQ(store.find({7, 100}), std::nullopt);
  }
}

TEST_F(FrameStore_, KeepsNoMoreThanItsQuota) {
  FrameStore store(path(), 300);
  EXPECT_TRUE(store.keep({1, 1}, frame_of(100, 1)));
  EXPECT_TRUE(store.keep({2, 1}, frame_of(100, 1)));
  EXPECT_FALSE(store.keep({3, 1}, frame_of(100, 1)));
  EXPECT_TRUE(store.keep({4, 1}, frame_of(4, 1)));
  EXPECT_FALSE(store.keep({5, 1}, frame_of(1, 1)));
  EXPECT_EQ(bytes(), 300U);
  EXPECT_EQ(store.held().size(), 3U);
}

TEST_F(FrameStore_, WithoutAQuotaKeepsNothingAndMakesNoFile) {
  FrameStore store(path(), 0);
  EXPECT_FALSE(store.keep({1, 1}, frame_of(1, 1)));
  EXPECT_EQ(store.find({1, 1}), std::nullopt);
  EXPECT_TRUE(list_folder(folder_.file("")).empty());
}

TEST_F(FrameStore_, OfAServerThatWasKilledInTheMiddleOfARecordHasTheOthers) {
  {
    FrameStore store(path(), 1 << 20);
    ASSERT_TRUE(store.keep({1, 1}, frame_of(100, 1)) && store.keep({2, 1}, frame_of(100, 2)));
  }
  ASSERT_EQ(::truncate(path().c_str(), 200), 0);
  FrameStore store(path(), 1 << 20);
  EXPECT_EQ(store.find({1, 1}), frame_of(100, 1));
  EXPECT_EQ(store.find({2, 1}), std::nullopt);
  EXPECT_EQ(bytes(), 132U) << "the rest was cut off";
  EXPECT_TRUE(store.keep({2, 1}, frame_of(100, 3)));
  EXPECT_EQ(store.find({2, 1}), frame_of(100, 3));
}

TEST_F(FrameStore_, WhoseRecordIsDamagedHasThoseBeforeIt) {
  for (const std::uint64_t at : {132U, 136U, 140U, 148U, 156U, 163U}) {
    (void)remove_tree(path());
    {
      FrameStore store(path(), 1 << 20);
      ASSERT_TRUE(store.keep({1, 1}, frame_of(100, 1)) && store.keep({2, 1}, frame_of(100, 2)) && store.keep({3, 1}, frame_of(100, 3)));
    }
    change_byte(at);
    const FrameStore store(path(), 1 << 20);
    EXPECT_EQ(store.held().size(), 1U) << at;
    EXPECT_EQ(store.find({1, 1}), frame_of(100, 1)) << at;
  }
}

TEST_F(FrameStore_, IsItsOwnersAloneWhateverTheUmask) {
  const auto before = ::umask(0);
  { const FrameStore store(path(), 1 << 20); }
  ::umask(before);
  struct stat status {};
  ASSERT_EQ(::stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST_F(FrameStore_, FollowsNoLink) {
  ASSERT_EQ(::symlink("/etc/passwd", path().c_str()), 0);
  EXPECT_THROW(FrameStore(path(), 1 << 20), std::runtime_error);
}

}  // namespace
}  // namespace epipe::boundary
