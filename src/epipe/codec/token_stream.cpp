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

bool any_escape(std::span<const std::uint8_t> tokens) {
  std::uint8_t largest = 0;
  for (const std::uint8_t token : tokens) largest = std::max(largest, token);
  return largest >= kFirstEscape;
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

template <std::size_t kSets>
void CountedTokens::add_by(std::size_t slot, std::span<const std::uint8_t> tokens, const std::uint8_t* levels) {
  std::array<TokenCounts*, kSets> sets;
  for (std::size_t k = 0; k < kSets; ++k) sets[k] = sets_[k].data() + slot;
  std::size_t i = 0;
  for (; i + kSets <= tokens.size(); i += kSets) {
    for (std::size_t k = 0; k < kSets; ++k) ++sets[k][levels[i + k]][tokens[i + k]];
  }
  for (; i < tokens.size(); ++i) ++sets[0][levels[i]][tokens[i]];
}

void CountedTokens::add(std::size_t slot, std::span<const std::uint8_t> tokens, const std::uint8_t* levels) {
  used_ == kMostSets ? add_by<kMostSets>(slot, tokens, levels) : add_by<kFewestSets>(slot, tokens, levels);
}

void CountedTokens::add(const CountedTokens& other) {
  for (std::size_t set = 0; set < used_; ++set) {
    for (std::size_t s = 0; s < sets_[set].size(); ++s) {
      for (std::size_t t = 0; t < kernels::kTokens; ++t) sets_[set][s][t] += other.sets_[set][s][t];
    }
  }
}

void CountedTokens::reset(std::size_t slots, std::size_t symbols) {
  constexpr std::size_t kMany = std::size_t{1} << 20U;  // symbols, beside which clearing and adding up sets is nothing
  used_ = symbols >= kMany ? kMostSets : kFewestSets;
  for (std::size_t set = 0; set < used_; ++set) sets_[set].assign(slots, TokenCounts{});
}

void CountedTokens::total(std::vector<TokenCounts>& all) const {
  all = sets_[0];
  for (std::size_t set = 1; set < used_; ++set) {
    for (std::size_t s = 0; s < all.size(); ++s) {
      for (std::size_t t = 0; t < kernels::kTokenRoom; ++t) all[s][t] += sets_[set][s][t];
    }
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
  scratch.raw.resize(3 * chunk.symbols);
  kernels::BitWriter writer(scratch.raw);
  kernels.write_raw({tokens, chunk.symbols}, y.data(), zone, writer);
  writer.finish();
  append_bytes(*raw, ByteView(scratch.raw).first(writer.bytes()));
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
    const double weight = 1.0 / (planes.gain(chunk, p) * planes.gain(chunk, p));
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

ChunkDecoder::ChunkDecoder(const Coding& coding, const ChunkSource& from, TokenScratch& scratch, std::span<float> y)
    : coding_(coding),
      chunk_(from.chunk),
      scratch_(scratch),
      y_(y),
      context_(coding.planes, from.chunk, coding.kernels),
      bits_(from.raw),
      decoder_{coding.lanes, {}, nullptr, nullptr} {
  const std::size_t states = coding.lanes * sizeof(std::uint32_t);
  sound_ = from.words.size() >= states && from.words.size() % 2 == 0;
  if (!sound_) return;
  decoder_.in = from.words.data() + states;
  decoder_.end = from.words.data() + from.words.size();
  std::memcpy(decoder_.states.data(), from.words.data(), states);
  for (unsigned lane = 0; lane < coding.lanes; ++lane) sound_ &= decoder_.states[lane] >= kernels::kLowestState;
  scratch.magnitudes.resize(chunk_.symbols);
  const std::size_t longest = coding.planes.plane(chunk_, 0).length;
  scratch.tokens.resize(longest);
  scratch.table_of.resize(longest);
}

kernels::TokenRun ChunkDecoder::start_plane(std::size_t index) {
  plane_ = coding_.planes.plane(chunk_, index);
  std::uint8_t* const table_of = scratch_.table_of.data();
  context_.levels(index, scratch_.magnitudes.data(), table_of);
  tables_of(coding_, plane_, table_of, table_of);
  return {&decoder_, {scratch_.tokens.data(), plane_.length}, table_of};
}

bool ChunkDecoder::finish_plane(std::span<const float> values) {
  const std::span<const std::uint8_t> tokens(scratch_.tokens.data(), plane_.length);
  float* const y = y_.data() + plane_.begin;
  coding_.kernels.magnitudes_of(tokens, scratch_.magnitudes.data() + plane_.begin);
  coding_.kernels.look_up(tokens, scratch_.table_of.data(), values.data(), y);
  return coding_.kernels.read_raw(tokens, coding_.step, bits_, y);
}

bool decode_chunk(ChunkDecoder& chunk, const kernels::DecodeTables& tables, std::span<const float> values) {
  if (!chunk.sound()) return false;
  for (std::size_t p = 0; p < chunk.planes(); ++p) {
    const kernels::TokenRun run = chunk.start_plane(p);
    if (!chunk.kernels().decode_tokens(*run.decoder, run.tokens, run.table_of, tables.data()) || !chunk.finish_plane(values)) return false;
  }
  return chunk.finished();
}

bool decode_two_chunks(ChunkDecoder& a, ChunkDecoder& b, const kernels::DecodeTables& tables, std::span<const float> values) {
  if (!a.sound() || !b.sound()) return false;
  if (a.planes() != b.planes()) return decode_chunk(a, tables, values) && decode_chunk(b, tables, values);
  for (std::size_t p = 0; p < a.planes(); ++p) {
    const kernels::TokenRun first = a.start_plane(p);
    const kernels::TokenRun second = b.start_plane(p);
    if (!a.kernels().decode_two(first, second, tables.data()) || !a.finish_plane(values) || !b.finish_plane(values)) return false;
  }
  return a.finished() && b.finished();
}

}  // namespace epipe::codec
