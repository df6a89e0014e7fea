#include "epipe/codec/kernels/select.h"

#include <algorithm>
#include <bit>

#include "epipe/codec/kernels/key.h"

namespace epipe::kernels {
namespace {

using Ranks = std::span<const std::size_t>;

constexpr std::size_t kFewKeys = 64;  // up to this many a plain sort is as good as anything

std::uint32_t distance(Key low, Key high) { return static_cast<std::uint32_t>(high) - static_cast<std::uint32_t>(low); }

// Equal slices of a key range, fine enough that the wanted ones hold few keys.
class Bins {
 public:
  Bins(KeyRange range, unsigned bits)
      : min_(range.min),
        shift_(
            static_cast<unsigned>(std::max(0, static_cast<int>(std::bit_width(distance(range.min, range.max))) - static_cast<int>(bits)))) {
  }
  std::uint32_t operator()(Key key) const { return distance(min_, key) >> shift_; }
  bool single_keys() const { return shift_ == 0; }
  KeyRange range(std::size_t bin) const {
    const std::uint32_t first = static_cast<std::uint32_t>(min_) + (static_cast<std::uint32_t>(bin) << shift_);
    return {static_cast<Key>(first), static_cast<Key>(first + (std::uint32_t{1} << shift_) - 1)};
  }

 private:
  Key min_;
  unsigned shift_;
};

// One bin that holds wanted ranks: its keys and the ranks within it.
struct Bucket {
  Keys keys;
  KeyRange range{};
  std::vector<std::size_t> ranks;  // relative to the bucket
  std::size_t first_answer = 0;    // where its answers go
};

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
        std::fill_n(answers.begin() + static_cast<std::ptrdiff_t>(bucket.first_answer), bucket.ranks.size(), bins.range(b).min);
      } else {
        bucket.keys.resize(total);
        bucket.range = bins.range(b);
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
  for (Bucket& bucket : buckets)
    select_keys(bucket.keys, bucket.range, bucket.ranks, answers.subspan(bucket.first_answer, bucket.ranks.size()));
}

}  // namespace

void select_keys(Keys& keys, KeyRange range, Ranks ranks, std::span<Key> answers) {
  if (keys.size() <= kFewKeys) {
    std::sort(keys.begin(), keys.end());
    for (std::size_t r = 0; r < ranks.size(); ++r) answers[r] = keys[ranks[r]];
    return;
  }
  constexpr unsigned kBinBits = 11;
  const Bins bins(range, kBinBits);
  select_by_bins(
      keys.size(), [&](std::size_t i) { return keys[i]; }, bins, kBinBits, ranks, answers, nullptr);
}

std::vector<Key> select_by_histograms(std::span<const float> x, KeyOf of, std::span<const std::size_t> ranks, KeyRange range,
                                      ThreadPool* pool) {
  const unsigned bin_bits = x.size() < (1U << 15) ? 11 : 14;
  std::vector<Key> answers(ranks.size());
  const Bins bins(range, bin_bits);
  if (of == KeyOf::kValue) {
    select_by_bins(
        x.size(), [&](std::size_t i) { return value_key(x[i]); }, bins, bin_bits, ranks, answers, pool);
  } else {
    select_by_bins(
        x.size(), [&](std::size_t i) { return magnitude_key(x[i]); }, bins, bin_bits, ranks, answers, pool);
  }
  return answers;
}

}  // namespace epipe::kernels
