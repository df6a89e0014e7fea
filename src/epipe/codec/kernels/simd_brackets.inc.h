// Order statistics: the pass over a tensor that counts around brackets and collects what lies inside. Included by simd.inc.h, in terms of
// the same lane operations.

// NOLINTBEGIN(misc-definitions-in-headers): part of the including file's unnamed namespace

// Up to kCount brackets, their counters in registers. Counts of one lane fit 32 bits: a part of 2^32 * kLanes values is 256 GiB.
template <std::size_t kCount>
struct BracketCounters {
  Ints low[kCount];  // NOLINT: std::array drops the vector type's alignment attribute
  Ints high[kCount];
  Ints below_low[kCount];
  Ints above_low[kCount];
  Ints above_high[kCount];
  Key* inside[kCount];

  explicit BracketCounters(std::span<const Bracket> brackets) {
    for (std::size_t b = 0; b < kCount; ++b) {
      low[b] = all_ints(brackets[b].low);
      high[b] = all_ints(brackets[b].high);
      below_low[b] = above_low[b] = above_high[b] = all_ints(0);
      inside[b] = brackets[b].inside.data() + brackets[b].inside_count;
    }
  }

  void add(Ints keys) {
    for (std::size_t b = 0; b < kCount; ++b) {
      const Mask above = less(low[b], keys);
      below_low[b] = count_if(below_low[b], less(keys, low[b]));
      above_low[b] = count_if(above_low[b], above);
      above_high[b] = count_if(above_high[b], less(high[b], keys));
      inside[b] += compress(keys, mask_bits(both(above, less(keys, high[b]))), inside[b]);
    }
  }

  bool has_room(std::span<const Bracket> brackets) const {
    for (std::size_t b = 0; b < kCount; ++b) {
      if (inside[b] + kGroup > brackets[b].inside.data() + brackets[b].inside.size()) return false;
    }
    return true;
  }

  void add_to(std::span<Bracket> brackets, std::size_t values) const {
    for (std::size_t b = 0; b < kCount; ++b) {
      brackets[b].inside_count = static_cast<std::size_t>(inside[b] - brackets[b].inside.data());
      brackets[b].below_low += sum(below_low[b]);
      brackets[b].upto_low += values - sum(above_low[b]);
      brackets[b].upto_high += values - sum(above_high[b]);
    }
  }
};

template <KeyOf kOf, std::size_t kCount>
BracketScan scan_counted_brackets(std::span<const float> x, std::span<Bracket> brackets) {
  const std::size_t full = x.size() / kGroup * kGroup;
  if (full == 0) return scalar_impl::scan_brackets(x, kOf, brackets);
  BracketCounters<kCount> counters(brackets);
  Ints smallest = lane_keys<kOf>(load_floats(x.data()));
  Ints largest = smallest;
  for (std::size_t i = 0; i < full; i += kGroup) {
    if (!counters.has_room(brackets)) return {lane_range(smallest, largest), false};
    for (std::size_t v = 0; v < kGroup; v += kLanes) {
      const Ints keys = lane_keys<kOf>(load_floats(x.data() + i + v));
      smallest = min(smallest, keys);
      largest = max(largest, keys);
      counters.add(keys);
    }
  }
  counters.add_to(brackets, full);
  const KeyRange range = lane_range(smallest, largest);
  if (full == x.size()) return {range, true};
  const BracketScan rest = scalar_impl::scan_brackets(x.subspan(full), kOf, brackets);
  return {{std::min(range.min, rest.range.min), std::max(range.max, rest.range.max)}, rest.fits};
}

template <KeyOf kOf>
BracketScan scan_brackets_of(std::span<const float> x, std::span<Bracket> brackets) {
  static_assert(kMaxBrackets == 8);
  switch (brackets.size()) {
    case 1: return scan_counted_brackets<kOf, 1>(x, brackets);
    case 2: return scan_counted_brackets<kOf, 2>(x, brackets);
    case 3: return scan_counted_brackets<kOf, 3>(x, brackets);
    case 4: return scan_counted_brackets<kOf, 4>(x, brackets);
    case 5: return scan_counted_brackets<kOf, 5>(x, brackets);
    case 6: return scan_counted_brackets<kOf, 6>(x, brackets);
    case 7: return scan_counted_brackets<kOf, 7>(x, brackets);
    default: return scan_counted_brackets<kOf, 8>(x, brackets);
  }
}

BracketScan scan_brackets(std::span<const float> x, KeyOf of, std::span<Bracket> brackets) {
  return of == KeyOf::kValue ? scan_brackets_of<KeyOf::kValue>(x, brackets) : scan_brackets_of<KeyOf::kMagnitude>(x, brackets);
}

// NOLINTEND(misc-definitions-in-headers)
