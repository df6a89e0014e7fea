#include "epipe/data/fetch/md5.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>

namespace epipe::data {
namespace {

using State = std::array<std::uint32_t, 4>;
constexpr std::size_t kMd5Block = 64;

// floor(2^32 |sin(i + 1)|), as the RFC defines them.
std::array<std::uint32_t, 64> make_sines() {
  std::array<std::uint32_t, 64> sines{};
  for (std::size_t i = 0; i < sines.size(); ++i)
    sines[i] = static_cast<std::uint32_t>(std::abs(std::sin(static_cast<double>(i + 1))) * 0x1p32);
  return sines;
}

constexpr std::array<std::array<int, 4>, 4> kShifts = {{{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}}};

void add_block(State& state, ByteView block) {
  static const auto sines = make_sines();
  auto [a, b, c, d] = state;
  for (std::uint32_t i = 0; i < 64; ++i) {
    const std::uint32_t round = i / 16;
    const std::uint32_t f = round == 0 ? (b & c) | (~b & d) : round == 1 ? (d & b) | (~d & c) : round == 2 ? b ^ c ^ d : c ^ (b | ~d);
    const std::uint32_t word = round == 0 ? i : round == 1 ? (5 * i + 1) % 16 : round == 2 ? (3 * i + 5) % 16 : 7 * i % 16;
    const std::uint32_t sum = a + f + sines[i] + load<std::uint32_t>(block, std::size_t{4} * word);
    a = d;
    d = c;
    c = b;
    b += std::rotl(sum, kShifts[round][i % 4]);
  }
  state = {state[0] + a, state[1] + b, state[2] + c, state[3] + d};
}

// The data after the last whole block: the rest, a one bit, zeros, and the length in bits.
Bytes padded_rest(ByteView bytes) {
  const ByteView rest = bytes.subspan(bytes.size() / kMd5Block * kMd5Block);
  Bytes tail(rest.begin(), rest.end());
  tail.push_back(std::byte{0x80});
  while (tail.size() % kMd5Block != kMd5Block - 8) tail.push_back(std::byte{0});
  append(tail, static_cast<std::uint64_t>(bytes.size()) * 8);
  return tail;
}

}  // namespace

std::string md5(ByteView bytes) {
  State state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  for (std::size_t at = 0; at + kMd5Block <= bytes.size(); at += kMd5Block) add_block(state, bytes.subspan(at, kMd5Block));
  const Bytes tail = padded_rest(bytes);
  for (std::size_t at = 0; at < tail.size(); at += kMd5Block) add_block(state, ByteView(tail).subspan(at, kMd5Block));
  std::string text;
  for (const std::uint32_t word : state) text += fmt::format("{:08x}", __builtin_bswap32(word));
  return text;
}

}  // namespace epipe::data
