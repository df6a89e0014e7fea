#include "epipe/codec/token_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace epipe::codec {
namespace {

using kernels::Frequencies;
using kernels::kProbabilityScale;
using kernels::kTokens;

constexpr std::size_t kFirstGroups = 48;  // before the merging starts
constexpr double kTokenBits = 4;          // about what one entry of a table costs in the frame
constexpr double kTableBits = 28;         // and a table by itself

double n_log_n(double n) { return n > 0 ? n * std::log2(n) : 0; }

// The least |q| that a token stands for.
constexpr std::array<std::uint32_t, kTokens> kLeastMagnitude = [] {
  std::array<std::uint32_t, kTokens> least{};
  for (std::size_t t = 0; t < kTokens; ++t) {
    const auto token = static_cast<std::uint8_t>(t);
    least[t] = token < kernels::kFirstEscape ? kernels::magnitude_of(token) : static_cast<std::uint32_t>(kernels::escape_base(token));
  }
  return least;
}();

// No token from here on occurs: most slots have few symbols, or none, and most symbols are small.
std::size_t counted_tokens(const TokenCounts& counts) {
  constexpr std::size_t kStride = 16;
  for (std::size_t end = kernels::kTokenRoom; end > 0; end -= kStride) {
    std::uint32_t any = 0;
    for (std::size_t t = end - kStride; t < end; ++t) any |= counts[t];
    if (any != 0) return std::min(end, kTokens);
  }
  return 0;
}

struct Magnitudes {
  std::uint64_t sum = 0;
  std::uint64_t count = 0;

  explicit Magnitudes(const TokenCounts& counts) {
    const std::size_t end = counted_tokens(counts);
    for (std::size_t t = 0; t < end; ++t) {
      sum += std::uint64_t{kLeastMagnitude[t]} * counts[t];
      count += counts[t];
    }
  }
  void add(const Magnitudes& other) {
    sum += other.sum;
    count += other.count;
  }
  double mean() const { return static_cast<double>(sum) / static_cast<double>(count); }
};

// What a table and the tokens of these slots take.
template <typename Count>
double bits_of(Count&& count) {
  double total = 0;
  double bits = kTableBits;
  for (std::size_t t = 0; t < kTokens; ++t) {
    const double n = count(t);
    if (n == 0) continue;
    total += n;
    bits += kTokenBits - n_log_n(n);
  }
  return bits + n_log_n(total);
}

// Slots that share a table.
struct Group {
  TokenCounts counts{};
  Shift shift;
  std::vector<std::size_t> slots;
  double bits = 0;  // tokens and table

  void add(const TokenCounts& other, const Shift& other_shift, std::span<const std::size_t> other_slots) {
    for (std::size_t t = 0; t < kTokens; ++t) counts[t] += other[t];
    shift.add(other_shift);
    slots.insert(slots.end(), other_slots.begin(), other_slots.end());
  }
  void add_up() {
    bits = bits_of([&](std::size_t t) { return static_cast<double>(counts[t]); });
  }
};

// The used slots in the order of their mean magnitude, about equal ones together from the start.
std::vector<Group> first_groups(std::span<const TokenCounts> counts, std::span<const Shift> shifts) {
  struct Used {
    Magnitudes magnitudes;
    double mean;
    std::size_t slot;
  };
  std::vector<Used> used;
  for (std::size_t s = 0; s < counts.size(); ++s) {
    const Magnitudes magnitudes(counts[s]);
    if (magnitudes.count > 0) used.push_back({magnitudes, magnitudes.mean(), s});
  }
  std::sort(used.begin(), used.end(), [](const Used& a, const Used& b) { return a.mean != b.mean ? a.mean < b.mean : a.slot < b.slot; });
  const auto octave = [](double mean) { return std::floor(4 * std::log2(mean + 1.0 / 1024)); };
  std::vector<Group> groups;
  Magnitudes last{{}};  // of the last group
  for (const Used& u : used) {
    const bool joins = used.size() > kFirstGroups && !groups.empty() && octave(last.mean()) == octave(u.mean);
    if (joins) {
      groups.back().add(counts[u.slot], shifts[u.slot], {&u.slot, 1});
      last.add(u.magnitudes);
    } else {
      groups.push_back({counts[u.slot], shifts[u.slot], {u.slot}, 0});
      last = u.magnitudes;
    }
  }
  for (Group& group : groups) group.add_up();
  return groups;
}

// Merges neighbours as long as that saves bits or there are too many.
void merge_groups(std::vector<Group>& groups) {
  const auto gain = [&](std::size_t i) {
    const Group& a = groups[i];
    const Group& b = groups[i + 1];
    return a.bits + b.bits - bits_of([&](std::size_t t) { return static_cast<double>(a.counts[t] + b.counts[t]); });
  };
  std::vector<double> gains;
  for (std::size_t i = 0; i + 1 < groups.size(); ++i) gains.push_back(gain(i));
  while (!gains.empty()) {
    const auto best = static_cast<std::size_t>(std::max_element(gains.begin(), gains.end()) - gains.begin());
    if (gains[best] < 0 && groups.size() <= kernels::kMaxTables) return;
    groups[best].add(groups[best + 1].counts, groups[best + 1].shift, groups[best + 1].slots);
    groups[best].add_up();
    groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    gains.erase(gains.begin() + static_cast<std::ptrdiff_t>(best));
    if (best > 0) gains[best - 1] = gain(best - 1);
    if (best < gains.size()) gains[best] = gain(best);
  }
}

// ---- frequencies: quarter octaves on the wire ----

// 16 * 2^(code / 4), rounded; 0 is a token that does not occur.
constexpr std::uint32_t weight_of(std::uint8_t code) {
  constexpr std::array<std::uint32_t, 4> kQuarter = {65536, 77936, 92682, 110218};  // 2^16 * 2^(i / 4)
  return code == 0 ? 0 : ((kQuarter[code % 4] << (code / 4)) + 2048) >> 12;
}

FrequencyCodes codes_of(const TokenCounts& counts) {
  const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
  FrequencyCodes codes{};
  for (std::size_t t = 0; t < kTokens; ++t) {
    if (counts[t] == 0) continue;
    const double code = std::round(4 * std::log2(kProbabilityScale * (counts[t] / total)));
    codes[t] = static_cast<std::uint8_t>(std::clamp(code, 1.0, static_cast<double>(kMaxCode)));
  }
  return codes;
}

std::int8_t shift_of(const Shift& shift, std::size_t i) {
  if (shift.count[i] == 0) return 0;
  return static_cast<std::int8_t>(std::clamp(std::round(256 * shift.sum[i] / static_cast<double>(shift.count[i])), -127.0, 127.0));
}

}  // namespace

// Shares of the scale in proportion to the weights, at least 1 each; the token with the largest share, the first of several, takes
// what rounding left over or took too much.
Frequencies frequencies_of(const FrequencyCodes& codes) {
  std::uint64_t total = 0;
  for (const std::uint8_t code : codes) total += weight_of(code);
  Frequencies frequencies{};
  std::uint32_t sum = 0;
  std::size_t largest = 0;
  for (std::size_t t = 0; t < kTokens; ++t) {
    if (codes[t] == 0) continue;
    const std::uint64_t share = static_cast<std::uint64_t>(weight_of(codes[t])) * kProbabilityScale / total;
    frequencies[t] = static_cast<std::uint16_t>(std::max<std::uint64_t>(1, share));
    sum += frequencies[t];
    if (frequencies[t] > frequencies[largest]) largest = t;
  }
  frequencies[largest] = static_cast<std::uint16_t>(frequencies[largest] + kProbabilityScale - sum);
  return frequencies;
}

double ideal_bits(std::span<const TokenCounts> counts) {
  double bits = 0;
  for (const TokenCounts& slot : counts) {
    double total = 0;
    for (std::size_t t = 0; t < kTokens; ++t) {
      if (slot[t] == 0) continue;
      total += slot[t];
      bits -= n_log_n(slot[t]);
      if (t >= kernels::kFirstEscape) bits += static_cast<double>(slot[t]) * kernels::raw_bits(static_cast<std::uint8_t>(t));
    }
    bits += n_log_n(total);
  }
  return bits;
}

double coded_bits(std::span<const TokenCounts> counts, const TokenTables& tables) {
  std::vector<std::array<double, kTokens>> bits_of_token(tables.tables.size());
  for (std::size_t table = 0; table < bits_of_token.size(); ++table) {
    for (std::size_t t = 0; t < kTokens; ++t) {
      const std::uint16_t frequency = tables.tables[table][t];
      if (frequency == 0) continue;
      const unsigned raw = t >= kernels::kFirstEscape ? kernels::raw_bits(static_cast<std::uint8_t>(t)) : 0;
      bits_of_token[table][t] = kernels::kProbabilityBits - std::log2(static_cast<double>(frequency)) + raw;
    }
  }
  double bits = 0;
  for (std::size_t s = 0; s < counts.size(); ++s) {
    const auto& own = bits_of_token[tables.table_of[s]];
    const std::size_t end = counted_tokens(counts[s]);
    for (std::size_t t = 0; t < end; ++t) bits += counts[s][t] * own[t];
  }
  return bits;
}

TokenTables fit_tables(std::span<const TokenCounts> counts, std::span<const Shift> shifts, std::size_t levels) {
  std::vector<Group> groups = first_groups(counts, shifts);
  merge_groups(groups);
  TokenTables result;
  constexpr std::uint8_t kUnused = 255;
  result.table_of.assign(counts.size(), kUnused);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const std::size_t slot : groups[g].slots) result.table_of[slot] = static_cast<std::uint8_t>(g);
    result.codes.push_back(codes_of(groups[g].counts));
    result.tables.push_back(frequencies_of(result.codes.back()));
    result.shifts.push_back({shift_of(groups[g].shift, 0), shift_of(groups[g].shift, 1)});
  }
  // What nobody uses is what costs nothing to say.
  for (std::size_t s = 0; s < counts.size(); ++s) {
    if (result.table_of[s] == kUnused) result.table_of[s] = s >= levels ? result.table_of[s - levels] : s > 0 ? result.table_of[s - 1] : 0;
  }
  return result;
}

float level_value(std::int32_t magnitude, bool negative, const std::array<std::int8_t, 2>& shifts, float step) {
  const float shift = static_cast<float>(shifts[magnitude == 1 ? 0 : 1]) * 0x1p-8F;
  const float value = (static_cast<float>(magnitude) - shift) * step;
  return negative ? -value : value;
}

std::vector<float> token_values(const TokenTables& tables, float step) {
  std::vector<float> values(tables.tables.size() * kernels::kTokenRoom);
  for (std::size_t t = 0; t < tables.tables.size(); ++t) {
    for (std::uint8_t token = 1; token < kernels::kFirstEscape; ++token) {
      values[t * kernels::kTokenRoom + token] =
          level_value(kernels::magnitude_of(token), kernels::is_negative(token), tables.shifts[t], step);
    }
    for (std::size_t token = kernels::kFirstEscape; token < kernels::kTokens; ++token) {
      values[t * kernels::kTokenRoom + token] = static_cast<float>(tables.shifts[t][1]) * 0x1p-8F;
    }
  }
  return values;
}

}  // namespace epipe::codec
