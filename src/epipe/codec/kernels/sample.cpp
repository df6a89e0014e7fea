#include "epipe/codec/kernels/sample.h"

#include <array>
#include <utility>

#include "epipe/codec/kernels/key.h"

namespace epipe::kernels {

std::size_t sample_index(std::size_t j, std::size_t m, std::size_t n) {
  const std::size_t begin = j * n / m;
  const std::size_t end = (j + 1) * n / m;
  const std::uint64_t scrambled = (j + 1) * 0x9e3779b97f4a7c15ULL >> 32;  // multiplicative hashing, Knuth
  return begin + static_cast<std::size_t>(scrambled * (end - begin) >> 32);
}

std::vector<Key> sample_keys(std::span<const float> x, KeyOf of, std::size_t m, ThreadPool* pool) {
  std::vector<Key> keys(m);
  for_parts(pool, m, 1, [&](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t j = begin; j < end; ++j) keys[j] = key_of(x[sample_index(j, m, x.size())], of);
  });
  return keys;
}

void sort_keys(std::vector<Key>& keys) {
  constexpr unsigned kDigitBits = 11;
  constexpr std::uint32_t kDigitMask = (1U << kDigitBits) - 1;
  constexpr std::uint32_t kSign = 0x80000000;
  std::array<std::array<std::uint32_t, kDigitMask + 1>, 3> counts{};
  const auto digit = [](Key key, unsigned pass) { return ((static_cast<std::uint32_t>(key) ^ kSign) >> (pass * kDigitBits)) & kDigitMask; };
  for (const Key key : keys) {
    for (unsigned pass = 0; pass < 3; ++pass) ++counts[pass][digit(key, pass)];
  }
  std::vector<Key> other(keys.size());
  for (unsigned pass = 0; pass < 3; ++pass) {
    std::uint32_t offset = 0;
    for (std::uint32_t& count : counts[pass]) offset += std::exchange(count, offset);
    for (const Key key : keys) other[counts[pass][digit(key, pass)]++] = key;
    keys.swap(other);
  }
}

}  // namespace epipe::kernels
