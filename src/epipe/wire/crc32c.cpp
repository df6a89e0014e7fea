#include "epipe/wire/crc32c.h"

#include <array>
#include <vector>

#include "epipe/base/cpu_level.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace epipe::wire {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;

constexpr std::array<std::uint32_t, 256> make_byte_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[i] = crc;
  }
  return table;
}
constexpr auto kByteTable = make_byte_table();

// A linear map on the 32 bits of a checksum register: column i is the image of bit i.
using Operator = std::array<std::uint32_t, 32>;

constexpr std::uint32_t image(const Operator& map, std::uint32_t x) {
  std::uint32_t y = 0;
  for (std::size_t i = 0; x != 0; ++i, x >>= 1) {
    if ((x & 1) != 0) y ^= map[i];
  }
  return y;
}

constexpr Operator squared(const Operator& map) {
  Operator result{};
  for (std::size_t i = 0; i < 32; ++i) result[i] = image(map, map[i]);
  return result;
}

// What one zero byte does to the register.
constexpr Operator one_zero_byte() {
  Operator map{};
  for (std::size_t i = 0; i < 32; ++i) {
    const std::uint32_t x = std::uint32_t{1} << i;
    map[i] = kByteTable[x & 0xff] ^ (x >> 8);
  }
  return map;
}

// What `bytes` zero bytes do to the register, by repeated squaring.
constexpr std::uint32_t shift_zeros(std::uint32_t crc, std::uint64_t bytes) {
  Operator map = one_zero_byte();
  for (; bytes != 0; bytes >>= 1) {
    if ((bytes & 1) != 0) crc = image(map, crc);
    map = squared(map);
  }
  return crc;
}

#if defined(__x86_64__)

// Three streams hide the instruction's three-cycle latency: 24 bytes in flight.
constexpr std::size_t kStream = 4096;

// shift_zeros by a fixed distance as four table look-ups.
class FixedShift {
 public:
  explicit FixedShift(std::uint64_t bytes) {
    for (std::uint32_t part = 0; part < 4; ++part) {
      for (std::uint32_t i = 0; i < 256; ++i) table_[part][i] = shift_zeros(i << (8 * part), bytes);
    }
  }
  std::uint32_t operator()(std::uint32_t crc) const {
    return table_[0][crc & 0xff] ^ table_[1][(crc >> 8) & 0xff] ^ table_[2][(crc >> 16) & 0xff] ^ table_[3][crc >> 24];
  }

 private:
  std::array<std::array<std::uint32_t, 256>, 4> table_{};
};

__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(ByteView bytes, std::uint32_t before) {
  static const FixedShift over_one(kStream);
  static const FixedShift over_two(2 * kStream);
  const std::byte* p = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t crc = ~before;
  const auto word = [](const std::byte* at) {
    std::uint64_t value = 0;
    std::memcpy(&value, at, sizeof(value));
    return value;
  };
  for (; left >= 3 * kStream; left -= 3 * kStream, p += 3 * kStream) {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (std::size_t i = 0; i < kStream; i += 8) {
      crc = _mm_crc32_u64(crc, word(p + i));
      second = _mm_crc32_u64(second, word(p + kStream + i));
      third = _mm_crc32_u64(third, word(p + 2 * kStream + i));
    }
    crc = over_two(static_cast<std::uint32_t>(crc)) ^ over_one(static_cast<std::uint32_t>(second)) ^ third;
  }
  for (; left >= 8; left -= 8, p += 8) crc = _mm_crc32_u64(crc, word(p));
  auto tail = static_cast<std::uint32_t>(crc);
  for (; left > 0; --left, ++p) tail = _mm_crc32_u8(tail, static_cast<unsigned char>(*p));
  return ~tail;
}

#endif

}  // namespace

std::uint32_t crc32c_reference(ByteView bytes, std::uint32_t before) {
  std::uint32_t crc = ~before;
  for (const std::byte b : bytes) crc = kByteTable[(crc ^ static_cast<std::uint32_t>(b)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

std::uint32_t crc32c(ByteView bytes, std::uint32_t before) {
#if defined(__x86_64__)
  static const bool use_instruction = cpu_level_limit() > CpuLevel::kScalar && __builtin_cpu_supports("sse4.2") != 0;
  if (use_instruction) return crc32c_sse42(bytes, before);
#endif
  return crc32c_reference(bytes, before);
}

std::uint32_t crc32c_combine(std::uint32_t a, std::uint32_t b, std::uint64_t bytes_of_b) { return shift_zeros(a, bytes_of_b) ^ b; }

std::uint32_t crc32c_parallel(ByteView bytes, std::uint32_t before, ThreadPool* pool) {
  struct Part {
    std::uint32_t crc = 0;
    std::size_t bytes = 0;
  };
  std::vector<Part> parts(pool == nullptr ? 1 : static_cast<std::size_t>(pool->threads()));
  const std::size_t used = for_parts(pool, bytes.size(), std::size_t{3} * 4096, [&](std::size_t i, std::size_t begin, std::size_t end) {
    parts[i] = {crc32c(bytes.subspan(begin, end - begin)), end - begin};
  });
  std::uint32_t crc = before;
  for (std::size_t i = 0; i < used; ++i) crc = crc32c_combine(crc, parts[i].crc, parts[i].bytes);
  return crc;
}

}  // namespace epipe::wire
