#include "epipe/codec/token_stream.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "epipe/codec/kernels/bits.h"

namespace epipe::codec {
namespace {

using kernels::DeadZone;
using kernels::kFirstEscape;

// Calls each(index) for every byte above a limit. Eight at a time: bytes are below 128, so adding 127 - limit sets the top bit of those.
template <typename Each>
void for_those_above(std::uint8_t limit, std::span<const std::uint8_t> bytes, Each&& each) {
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  const std::uint64_t to_the_top = (127U - limit) * kOnes;
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t eight;
    std::memcpy(&eight, bytes.data() + i, sizeof eight);
    for (std::uint64_t found = (eight + to_the_top) & 128 * kOnes; found != 0; found &= found - 1) {
      each(i + static_cast<std::size_t>(std::countr_zero(found)) / 8);
    }
  }
  for (; i < bytes.size(); ++i) {
    if (bytes[i] > limit) each(i);
  }
}

template <typename Each>
void for_escapes(std::span<const std::uint8_t> tokens, Each&& each) {
  for_those_above(kFirstEscape - 1, tokens, each);
}

bool any_escape(std::span<const std::uint8_t> tokens) {
  std::uint8_t largest = 0;
  for (const std::uint8_t token : tokens) largest = std::max(largest, token);
  return largest >= kFirstEscape;
}

void append_raw(std::span<const std::uint8_t> tokens, const float* y, const DeadZone& zone, kernels::BitWriter& raw) {
  for_escapes(tokens, [&](std::size_t i) {
    const unsigned bits = kernels::raw_bits(tokens[i]);
    raw.put(static_cast<std::uint32_t>(kernels::level_of(y[i], zone)) & ((1U << bits) - 1), bits);
  });
}

// Levels of a plane to the tables of its symbols.
void tables_of(const Coding& coding, const Plane& plane, const std::uint8_t* levels, std::uint8_t* out) {
  std::array<std::uint8_t, 16> map{};
  std::copy_n(coding.tables.table_of.begin() + static_cast<std::ptrdiff_t>(plane.slot), coding.planes.levels(), map.begin());
  coding.kernels.map_bytes({levels, plane.length}, map, out);
}

// By how much |q| exceeds |y| / step in symbols of one slot, by their context levels. Neighbours go to two sets, so that they do not wait
// for each other; a summand is a multiple of 2^-24, so the sums are exact and their order does not matter.
class ExcessSums {
 public:
  void add(std::span<const std::uint8_t> tokens, const float* y, const DeadZone& zone, const std::uint8_t* levels) {
    for_those_above(0, tokens, [&](std::size_t i) {
      const std::int32_t level = tokens[i] < kFirstEscape ? kernels::magnitude_of(tokens[i]) : kernels::level_of(y[i], zone);
      Shift& own = sums_[i % 2][levels[i]];
      own.sum[level > 1] += static_cast<float>(level) - std::fabs(y[i]) * zone.scale;
      ++own.count[level > 1];
    });
  }
  // Moves them to shifts[level].
  void take(std::span<Shift> shifts) {
    for (std::size_t level = 0; level < shifts.size(); ++level) {
      for (const auto& set : sums_) shifts[level].add(set[level]);
    }
    sums_ = {};
  }

 private:
  static constexpr std::size_t kMostLevels = 16;
  std::array<std::array<Shift, kMostLevels>, 2> sums_{};
};

// Calls each(plane) for every plane of a chunk, from the first on.
template <typename Each>
void for_planes(const Planes& planes, const Chunk& chunk, Each&& each) {
  for (std::size_t p = 0; p < planes.plane_count(chunk); ++p) each(p, planes.plane(chunk, p));
}

}  // namespace

void CountedTokens::add(std::size_t slot, std::span<const std::uint8_t> tokens, const std::uint8_t* levels) {
  TokenCounts* const even = sets_[0].data() + slot;
  TokenCounts* const odd = sets_[1].data() + slot;
  std::size_t i = 0;
  for (; i + 2 <= tokens.size(); i += 2) {
    ++even[levels[i]][tokens[i]];
    ++odd[levels[i + 1]][tokens[i + 1]];
  }
  if (i < tokens.size()) ++even[levels[i]][tokens[i]];
}

void CountedTokens::add(const CountedTokens& other) {
  for (std::size_t set = 0; set < 2; ++set) {
    for (std::size_t s = 0; s < sets_[set].size(); ++s) {
      for (std::size_t t = 0; t < kernels::kTokens; ++t) sets_[set][s][t] += other.sets_[set][s][t];
    }
  }
}

void CountedTokens::reset(std::size_t slots) {
  for (auto& set : sets_) set.assign(slots, TokenCounts{});
}

void CountedTokens::total(std::vector<TokenCounts>& all) const {
  all.resize(sets_[0].size());
  for (std::size_t s = 0; s < all.size(); ++s) {
    for (std::size_t t = 0; t < kernels::kTokenRoom; ++t) all[s][t] = sets_[0][s][t] + sets_[1][s][t];
  }
}

void tokenize(const Planes& planes, const Chunk& chunk, std::span<const float> y, const DeadZone& zone, const kernels::Kernels& kernels,
              std::uint8_t* tokens, std::uint8_t* levels, TokenScratch& scratch, CountedTokens* counts, Bytes* raw) {
  auto& magnitudes = scratch.magnitudes;
  magnitudes.resize(chunk.symbols);
  ContextModel context(planes, chunk, kernels);
  kernels.quantize(y.first(chunk.symbols), zone, tokens);
  kernels.magnitudes_of({tokens, chunk.symbols}, magnitudes.data());
  for_planes(planes, chunk, [&](std::size_t p, const Plane& plane) {
    context.levels(p, magnitudes.data(), levels + plane.begin);
    if (counts != nullptr) counts->add(plane.slot, {tokens + plane.begin, plane.length}, levels + plane.begin);
  });
  if (raw == nullptr) return;
  raw->clear();
  if (!any_escape({tokens, chunk.symbols})) return;
  raw->resize(3 * chunk.symbols + 8);
  kernels::BitWriter writer(*raw);
  append_raw({tokens, chunk.symbols}, y.data(), zone, writer);
  writer.finish();
  raw->resize(writer.bytes());
}

void add_shifts(const Planes& planes, const Chunk& chunk, std::span<const float> y, const DeadZone& zone, const std::uint8_t* tokens,
                const std::uint8_t* levels, std::vector<Shift>& shifts) {
  ExcessSums sums;
  Plane same{0, 0, 0};  // planes of one slot that lie side by side: rows have them all
  const auto add_same = [&] {
    sums.add({tokens + same.begin, same.length}, y.data() + same.begin, zone, levels + same.begin);
    sums.take(std::span(shifts).subspan(same.slot, planes.levels()));
  };
  for_planes(planes, chunk, [&](std::size_t, const Plane& plane) {
    if (plane.slot == same.slot && plane.begin == same.begin + same.length) {
      same.length += plane.length;
    } else {
      add_same();
      same = plane;
    }
  });
  add_same();
}

double squared_error(const Planes& planes, const Chunk& chunk, std::span<const float> y, const DeadZone& zone, const std::uint8_t* levels,
                     const TokenTables& tables, float step) {
  double sum = 0;
  for_planes(planes, chunk, [&](std::size_t p, const Plane& plane) {
    const double weight = 1.0 / (planes.gain(p) * planes.gain(p));
    for (std::size_t i = plane.begin; i < plane.begin + plane.length; ++i) {
      const std::int32_t level = kernels::level_of(y[i], zone);
      const auto& shifts = tables.shifts[tables.table_of[plane.slot + levels[i]]];
      const double difference = level == 0 ? y[i] : y[i] - level_value(level, y[i] < 0, shifts, step);
      sum += weight * difference * difference;
    }
  });
  return sum;
}

void encode_chunk(const Coding& coding, const Chunk& chunk, const std::uint8_t* tokens, const std::uint8_t* levels,
                  const kernels::EncodeTables& tables, TokenScratch& scratch, Bytes& out) {
  auto& room = scratch.words;
  room.resize(2 * chunk.symbols + 64);
  auto& table_of = scratch.table_of;
  table_of.resize(coding.planes.plane(chunk, 0).length);
  auto encoder = kernels::start_encoder(coding.lanes, room);
  for (std::size_t p = coding.planes.plane_count(chunk); p-- > 0;) {
    const Plane plane = coding.planes.plane(chunk, p);
    tables_of(coding, plane, levels + plane.begin, table_of.data());
    coding.kernels.encode_tokens(encoder, {tokens + plane.begin, plane.length}, table_of.data(), tables.data());
  }
  const std::size_t states = coding.lanes * sizeof(std::uint32_t);
  const auto words = static_cast<std::size_t>(room.data() + room.size() - encoder.out);
  out.clear();
  append_bytes(out, std::as_bytes(std::span(encoder.states)).first(states));
  append_bytes(out, {encoder.out, words});
}

bool decode_chunk(const Coding& coding, const Chunk& chunk, ByteView words, ByteView raw, const kernels::DecodeTables& tables,
                  std::span<const float> values, TokenScratch& scratch, std::span<float> y) {
  const std::size_t states = coding.lanes * sizeof(std::uint32_t);
  if (words.size() < states || words.size() % 2 != 0) return false;
  kernels::RansDecoder decoder{coding.lanes, {}, words.data() + states, words.data() + words.size()};
  std::memcpy(decoder.states.data(), words.data(), states);
  for (unsigned lane = 0; lane < coding.lanes; ++lane) {
    if (decoder.states[lane] < kernels::kLowestState) return false;
  }
  kernels::BitReader bits(raw);
  auto& magnitudes = scratch.magnitudes;
  auto& tokens = scratch.tokens;
  auto& table_of = scratch.table_of;
  magnitudes.resize(chunk.symbols);
  const std::size_t longest = coding.planes.plane(chunk, 0).length;
  tokens.resize(longest);
  table_of.resize(longest);
  ContextModel context(coding.planes, chunk, coding.kernels);
  bool enough = true;  // raw bits
  for (std::size_t p = 0; p < coding.planes.plane_count(chunk); ++p) {
    const Plane plane = coding.planes.plane(chunk, p);
    const std::span<std::uint8_t> own(tokens.data(), plane.length);
    context.levels(p, magnitudes.data(), table_of.data());
    tables_of(coding, plane, table_of.data(), table_of.data());
    if (!coding.kernels.decode_tokens(decoder, own, table_of.data(), tables.data())) return false;
    coding.kernels.magnitudes_of(own, magnitudes.data() + plane.begin);
    coding.kernels.look_up(own, table_of.data(), values.data(), y.data() + plane.begin);
    for_escapes(own, [&](std::size_t i) {
      const unsigned width = kernels::raw_bits(own[i]);
      enough = enough && bits.available() >= width;
      if (!enough) return;
      const auto level = kernels::escape_base(own[i]) + static_cast<std::int32_t>(bits.take(width));
      y[plane.begin + i] = level_value(level, kernels::is_negative(own[i]), coding.tables.shifts[table_of[i]], coding.step);
    });
    if (!enough) return false;
  }
  return finished(decoder) && bits.available() < 8;
}

}  // namespace epipe::codec
