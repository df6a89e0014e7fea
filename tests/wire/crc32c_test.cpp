#include "epipe/wire/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>

namespace epipe::wire {
namespace {

ByteView bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

Bytes random_bytes(std::size_t n) {
  std::mt19937 engine(1);
  Bytes bytes(n);
  for (auto& b : bytes) b = static_cast<std::byte>(engine());
  return bytes;
}

TEST(Crc32c, MatchesThePublishedCheckValues) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283U);
  EXPECT_EQ(crc32c(Bytes(32, std::byte{0})), 0x8a9136aaU);     // RFC 3720, B.4
  EXPECT_EQ(crc32c(Bytes(32, std::byte{0xff})), 0x62a8ab43U);  // RFC 3720, B.4
  EXPECT_EQ(crc32c({}), 0U);
}

TEST(Crc32c, EqualsTheTableVersionForEveryLengthAndAlignment) {
  const Bytes bytes = random_bytes(40'000);
  const ByteView all(bytes);
  for (const std::size_t length : {0U, 1U, 7U, 8U, 9U, 63U, 4096U, 12287U, 12288U, 12289U, 24576U, 39'000U}) {
    for (std::size_t start = 0; start < 9; ++start) {
      const ByteView part = all.subspan(start, length);
      ASSERT_EQ(crc32c(part), crc32c_reference(part)) << length << " bytes from " << start;
    }
  }
}

TEST(Crc32c, ContinuesAndCombines) {
  const Bytes bytes = random_bytes(10'001);
  const ByteView all(bytes);
  for (const std::size_t cut : {0U, 1U, 5000U, 10'001U}) {
    const auto a = crc32c(all.first(cut));
    const auto b = crc32c(all.subspan(cut));
    EXPECT_EQ(crc32c(all.subspan(cut), a), crc32c(all));
    EXPECT_EQ(crc32c_combine(a, b, all.size() - cut), crc32c(all));
  }
}

TEST(Crc32c, IsTheSameWithAnyNumberOfThreads) {
  const Bytes bytes = random_bytes(1'000'003);
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(crc32c_parallel(bytes, 17, &pool), crc32c(bytes, 17)) << threads;
  }
}

}  // namespace
}  // namespace epipe::wire
