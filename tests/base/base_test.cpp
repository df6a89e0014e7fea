#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "epipe/base/bytes.h"
#include "epipe/base/thread_pool.h"

namespace epipe {
namespace {

// Memory of this size that a next allocation gets again, full of something.
void leave_secret(std::size_t bytes) {
  const std::vector<char> secret(bytes, 'S');
  asm volatile("" : : "r"(secret.data()) : "memory");
}

TEST(Bytes, HoldNothingThatWasInMemoryBefore) {
  for (const std::size_t size : {100U, 5'000U, 100'000U}) {
    leave_secret(size);
    EXPECT_TRUE(all_zeros(Bytes(size))) << size;
    Bytes grown;
    leave_secret(size);
    grown.resize(size);
    EXPECT_TRUE(all_zeros(grown)) << size;
    Bytes appended;
    leave_secret(size);
    grow(appended, size);
    EXPECT_TRUE(all_zeros(appended)) << size;
  }
}

TEST(Bytes, AreNotMadeOfScratchMemory) {
  static_assert(!std::is_convertible_v<Scratch, Bytes>);
  static_assert(!std::is_constructible_v<Bytes, Scratch>);
}

TEST(Unwritten, RoomIsNoPartOfTheBytesBeforeItIsWritten) {
  Bytes out;
  append(out, std::uint32_t{7});
  {
    Unwritten room(out, 100);
    EXPECT_EQ(room.span().size(), 100U);
    std::fill(room.span().begin(), room.span().end(), std::byte{1});
  }
  EXPECT_EQ(out.size(), 4U) << "what failed in between leaves nothing";
  Unwritten room(out, 100);
  std::fill(room.span().begin(), room.span().end(), std::byte{2});
  room.written(3);
  ASSERT_EQ(out.size(), 7U);
  EXPECT_EQ(load<std::uint32_t>(out, 0), 7U);
  EXPECT_EQ(out.back(), std::byte{2});
}

TEST(ByteReader, StopsAtTheEndInsteadOfReadingPastIt) {
  const std::array<std::byte, 5> bytes{};
  ByteReader reader(bytes);
  EXPECT_TRUE(reader.take<std::uint32_t>());
  EXPECT_FALSE(reader.take<std::uint32_t>());
  EXPECT_FALSE(reader.take_bytes(~std::uint64_t{0}));
  EXPECT_EQ(reader.rest().size(), 1U);
}

TEST(CheckedArithmetic, SeesOverflow) {
  EXPECT_EQ(checked_mul(1ULL << 32, 1ULL << 31), 1ULL << 63);
  EXPECT_FALSE(checked_mul(1ULL << 32, 1ULL << 32));
  EXPECT_EQ(checked_add(~0ULL - 1, 1), ~0ULL);
  EXPECT_FALSE(checked_add(~0ULL, 1));
}

TEST(ThreadPool, RunsEveryTaskOnceForAnyNumberOfThreads) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (const std::size_t count : {0U, 1U, 3U, 1000U}) {
      std::vector<std::atomic<int>> calls(count);
      pool.run(count, [&](std::size_t i) { ++calls[i]; });
      for (const auto& c : calls) EXPECT_EQ(c, 1);
    }
  }
}

TEST(ThreadPool, RethrowsTheFirstFailureAndStaysUsable) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.run(8, [](std::size_t) { throw std::runtime_error("task"); }), std::runtime_error);
  std::atomic<int> calls = 0;
  pool.run(8, [&](std::size_t) { ++calls; });
  EXPECT_EQ(calls, 8);
}

TEST(ForParts, CoversTheRangeOnceWithAlignedBorders) {
  ThreadPool pool(3);
  const std::size_t n = 100'003;
  std::vector<std::atomic<int>> seen(n);
  const std::size_t parts = for_parts(&pool, n, 64, [&](std::size_t, std::size_t begin, std::size_t end) {
    EXPECT_EQ(begin % 64, 0U);
    for (std::size_t i = begin; i < end; ++i) ++seen[i];
  });
  EXPECT_EQ(parts, 3U);
  for (const auto& s : seen) ASSERT_EQ(s, 1);
}

}  // namespace
}  // namespace epipe
