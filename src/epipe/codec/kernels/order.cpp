#include "epipe/codec/kernels/order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "epipe/codec/kernels/key.h"

namespace epipe::kernels {
namespace {

using Ranks = std::span<const std::size_t>;
using Keys = std::vector<Key, UninitializedAllocator<Key>>;

constexpr std::size_t kFewKeys = 64;              // below this a plain sort is as good as anything
constexpr std::size_t kMaxBrackets = 8;           // more would make the pass slower than histograms
constexpr std::size_t kMinBracketed = 1U << 15;   // values below which sampling does not pay
constexpr std::size_t kMaxSample = 1U << 16;

std::uint32_t distance(Key low, Key high) { return static_cast<std::uint32_t>(high) - static_cast<std::uint32_t>(low); }

// Equal slices of a key range, fine enough that the wanted ones hold few keys.
class Bins {
 public:
  Bins(KeyRange range, unsigned bits)
      : min_(range.min), shift_(static_cast<unsigned>(std::max(0, static_cast<int>(std::bit_width(distance(range.min, range.max))) -
                                                                      static_cast<int>(bits)))) {}
  std::uint32_t operator()(Key key) const { return distance(min_, key) >> shift_; }
  bool single_keys() const { return shift_ == 0; }
  Key first(std::size_t bin) const {
    return static_cast<Key>(static_cast<std::uint32_t>(min_) + (static_cast<std::uint32_t>(bin) << shift_));
  }

 private:
  Key min_;
  unsigned shift_;
};

// One bin that holds wanted ranks: its keys and the ranks within it.
struct Bucket {
  Keys keys;
  std::vector<std::size_t> ranks;  // relative to the bucket
  std::size_t first_answer = 0;    // where its answers go
};

void select_keys(Keys& keys, Ranks ranks, std::span<Key> answers);

// Looks the ranks up through a histogram of `bins`. At(i) is key i of n. Buckets are filled in parallel parts, in order.
template <typename At>
void select_by_bins(std::size_t n, const At& at, const Bins& bins, unsigned bin_bits, Ranks ranks, std::span<Key> answers,
                    ThreadPool* pool) {
  const std::size_t bin_count = (std::size_t{1} << bin_bits) + 1;
  const std::size_t max_parts = pool == nullptr ? 1 : static_cast<std::size_t>(pool->threads());
  std::vector<std::vector<std::uint32_t>> counts(max_parts);
  const std::size_t parts = for_parts(pool, n, 1, [&](std::size_t part, std::size_t begin, std::size_t end) {
    // Two histograms take turns: equal neighbours would otherwise wait for each other's increment.
    std::vector<std::uint32_t> even(bin_count);
    std::vector<std::uint32_t> odd(bin_count);
    std::size_t i = begin;
    for (; i + 1 < end; i += 2) {
      ++even[bins(at(i))];
      ++odd[bins(at(i + 1))];
    }
    if (i < end) ++even[bins(at(i))];
    for (std::size_t b = 0; b < bin_count; ++b) even[b] += odd[b];
    counts[part] = std::move(even);
  });

  // Which bins hold ranks, and where each part writes its share of them.
  constexpr std::uint32_t kUnwanted = ~std::uint32_t{0};
  std::vector<Bucket> buckets;
  std::vector<std::uint32_t> bucket_of(bin_count, kUnwanted);
  std::vector<std::vector<std::size_t>> offsets(parts);
  std::size_t below = 0;
  std::size_t next_rank = 0;
  for (std::size_t b = 0; b < bin_count && next_rank < ranks.size(); ++b) {
    std::size_t total = 0;
    for (std::size_t part = 0; part < parts; ++part) total += counts[part][b];
    if (ranks[next_rank] < below + total) {
      Bucket bucket;
      bucket.first_answer = next_rank;
      for (; next_rank < ranks.size() && ranks[next_rank] < below + total; ++next_rank) bucket.ranks.push_back(ranks[next_rank] - below);
      if (bins.single_keys()) {
        std::fill_n(answers.begin() + static_cast<std::ptrdiff_t>(bucket.first_answer), bucket.ranks.size(), bins.first(b));
      } else {
        bucket.keys.resize(total);
        bucket_of[b] = static_cast<std::uint32_t>(buckets.size());
        std::size_t offset = 0;
        for (std::size_t part = 0; part < parts; ++part) {
          offsets[part].push_back(offset);
          offset += counts[part][b];
        }
        buckets.push_back(std::move(bucket));
      }
    }
    below += total;
  }
  if (buckets.empty()) return;

  for_parts(pool, n, 1, [&](std::size_t part, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const Key key = at(i);
      const std::uint32_t bucket = bucket_of[bins(key)];
      if (bucket != kUnwanted) buckets[bucket].keys[offsets[part][bucket]++] = key;
    }
  });
  for (Bucket& bucket : buckets) select_keys(bucket.keys, bucket.ranks, answers.subspan(bucket.first_answer, bucket.ranks.size()));
}

void select_keys(Keys& keys, Ranks ranks, std::span<Key> answers) {
  if (keys.size() <= kFewKeys) {
    std::sort(keys.begin(), keys.end());
    for (std::size_t r = 0; r < ranks.size(); ++r) answers[r] = keys[ranks[r]];
    return;
  }
  constexpr unsigned kBinBits = 11;
  const auto [low, high] = std::minmax_element(keys.begin(), keys.end());
  const Bins bins({*low, *high}, kBinBits);
  select_by_bins(keys.size(), [&](std::size_t i) { return keys[i]; }, bins, kBinBits, ranks, answers, nullptr);
}

Order select_by_histograms(std::span<const float> x, KeyOf of, Ranks ranks, KeyRange range, ThreadPool* pool) {
  const unsigned bin_bits = x.size() < kMinBracketed ? 11 : 14;
  Order order{range, std::vector<Key>(ranks.size())};
  const Bins bins(range, bin_bits);
  if (of == KeyOf::kValue) {
    select_by_bins(x.size(), [&](std::size_t i) { return value_key(x[i]); }, bins, bin_bits, ranks, order.keys, pool);
  } else {
    select_by_bins(x.size(), [&](std::size_t i) { return magnitude_key(x[i]); }, bins, bin_bits, ranks, order.keys, pool);
  }
  return order;
}

std::vector<Key> sorted_sample(std::span<const float> x, KeyOf of) {
  const std::size_t m = std::min(kMaxSample, x.size() / 16);
  std::vector<Key> sample(m);
  for (std::size_t j = 0; j < m; ++j) sample[j] = key_of(x[sample_index(j, m, x.size())], of);
  sort_keys(sample);
  return sample;
}

// Ranks that share a bracket: neighbours in the sample.
struct Group {
  std::size_t first;  // index into ranks
  std::size_t count;
};

// Where the sample puts the ranks of one group, four standard deviations to each side.
Bracket bracket_for(std::span<const Key> sample, std::size_t n, std::size_t low_rank, std::size_t high_rank) {
  const auto m = static_cast<double>(sample.size());
  const auto place = [&](std::size_t rank, double side) {
    const double p = static_cast<double>(rank) / static_cast<double>(n);
    const double position = p * m + side * (4 * std::sqrt(m * p * (1 - p)) + 2);
    return static_cast<std::size_t>(std::clamp(position, 0.0, m - 1));
  };
  return {sample[place(low_rank, -1)], sample[place(high_rank, +1)]};
}

std::vector<Group> group_ranks(Ranks ranks) {
  std::vector<Group> groups;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (!groups.empty() && ranks[r] - ranks[r - 1] <= 1) {
      ++groups.back().count;
    } else {
      groups.push_back({r, 1});
    }
  }
  return groups;
}

// The keys strictly between low and high. No branch in the loop: which keys belong is a coin toss to a predictor.
Keys between(std::span<const Keys> all, Key low, Key high) {
  std::size_t size = 1;
  for (const Keys& keys : all) size += keys.size();
  Keys own(size);
  std::size_t count = 0;
  for (const Keys& keys : all) {
    for (const Key key : keys) {
      own[count] = key;
      count += static_cast<std::size_t>(key > low) & static_cast<std::size_t>(key < high);
    }
  }
  own.resize(count);
  return own;
}

// Answers one group from the counts around its bracket and the keys inside all brackets; false when the bracket missed.
bool resolve(const Bracket& bracket, Ranks ranks, std::span<const Keys> inside, std::span<Key> answers) {
  if (ranks.front() < bracket.below_low || ranks.back() >= bracket.upto_high) return false;
  Keys own = between(inside, bracket.low, bracket.high);
  std::vector<std::size_t> inner;
  std::size_t first_inner = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r] < bracket.upto_low) {
      answers[r] = bracket.low;
      first_inner = r + 1;
    } else if (ranks[r] >= bracket.upto_low + own.size()) {
      answers[r] = bracket.high;
    } else {
      inner.push_back(ranks[r] - bracket.upto_low);
    }
  }
  if (!inner.empty()) select_keys(own, inner, answers.subspan(first_inner, inner.size()));
  return true;
}

struct PartScan {
  std::vector<Bracket> brackets;
  BracketScan scan{};
};

// nullopt when a bracket missed or caught too much; the range is right in any case.
std::optional<Order> select_by_brackets(std::span<const float> x, KeyOf of, Ranks ranks, const Kernels& kernels, ThreadPool* pool) {
  const auto groups = group_ranks(ranks);
  const auto sample = sorted_sample(x, of);
  std::vector<Bracket> brackets;
  for (const Group& g : groups) brackets.push_back(bracket_for(sample, x.size(), ranks[g.first], ranks[g.first + g.count - 1]));

  const std::size_t max_parts = pool == nullptr ? 1 : static_cast<std::size_t>(pool->threads());
  std::vector<PartScan> parts(max_parts);
  std::vector<Keys> inside(max_parts);
  const std::size_t used = for_parts(pool, x.size(), 1024, [&](std::size_t i, std::size_t begin, std::size_t end) {
    inside[i].resize((end - begin) / 4 + 1024);
    parts[i].brackets = brackets;
    parts[i].scan = kernels.scan_brackets(x.subspan(begin, end - begin), of, parts[i].brackets, inside[i]);
    inside[i].resize(parts[i].scan.inside);
  });

  Order order{parts[0].scan.range, std::vector<Key>(ranks.size())};
  bool fits = true;
  for (std::size_t i = 0; i < used; ++i) {
    const BracketScan& scan = parts[i].scan;
    order.range = {std::min(order.range.min, scan.range.min), std::max(order.range.max, scan.range.max)};
    fits &= scan.fits;
    for (std::size_t b = 0; b < brackets.size(); ++b) {
      brackets[b].below_low += parts[i].brackets[b].below_low;
      brackets[b].upto_low += parts[i].brackets[b].upto_low;
      brackets[b].upto_high += parts[i].brackets[b].upto_high;
    }
  }
  if (!fits) return std::nullopt;
  for (std::size_t b = 0; b < groups.size(); ++b) {
    const Group& g = groups[b];
    if (!resolve(brackets[b], ranks.subspan(g.first, g.count), inside, std::span(order.keys).subspan(g.first, g.count))) return std::nullopt;
  }
  return order;
}

KeyRange parallel_range(std::span<const float> x, KeyOf of, const Kernels& kernels, ThreadPool* pool) {
  std::vector<KeyRange> ranges(pool == nullptr ? 1 : static_cast<std::size_t>(pool->threads()));
  const std::size_t used = for_parts(pool, x.size(), 1024, [&](std::size_t i, std::size_t begin, std::size_t end) {
    ranges[i] = kernels.key_range(x.subspan(begin, end - begin), of);
  });
  KeyRange all = ranges[0];
  for (std::size_t i = 1; i < used; ++i) all = {std::min(all.min, ranges[i].min), std::max(all.max, ranges[i].max)};
  return all;
}

}  // namespace

Order order_statistics(std::span<const float> x, KeyOf of, std::span<const std::size_t> ranks, const Kernels& kernels, ThreadPool* pool) {
  // The ends come with the range; only the ranks between them need work.
  const auto first = std::find_if(ranks.begin(), ranks.end(), [](std::size_t r) { return r > 0; });
  const auto last = std::find_if(first, ranks.end(), [&](std::size_t r) { return r + 1 == x.size(); });
  const Ranks inner(first, last);

  std::optional<Order> found;
  if (x.size() >= kMinBracketed && !inner.empty() && group_ranks(inner).size() <= kMaxBrackets) {
    found = select_by_brackets(x, of, inner, kernels, pool);
  }
  if (!found) {
    const KeyRange range = parallel_range(x, of, kernels, pool);
    found = inner.empty() || !all_finite(range) ? Order{range, std::vector<Key>(inner.size())} : select_by_histograms(x, of, inner, range, pool);
  }
  Order order{found->range, {}};
  order.keys.assign(static_cast<std::size_t>(first - ranks.begin()), found->range.min);
  order.keys.insert(order.keys.end(), found->keys.begin(), found->keys.end());
  order.keys.resize(ranks.size(), found->range.max);
  return order;
}

std::size_t sample_index(std::size_t j, std::size_t m, std::size_t n) {
  const std::size_t begin = j * n / m;
  const std::size_t end = (j + 1) * n / m;
  const std::uint64_t scrambled = (j + 1) * 0x9e3779b97f4a7c15ULL >> 32;  // multiplicative hashing, Knuth
  return begin + static_cast<std::size_t>(scrambled * (end - begin) >> 32);
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
