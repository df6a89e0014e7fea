// The kernels once, in terms of the lane operations that avx2.cpp and avx512.cpp define before they include this file.
// Whatever is left over after the last full group of kGroup values goes through the scalar reference: same arithmetic, same bits.
// No include guard and no namespace: the including file provides both.
// NOLINTBEGIN(misc-definitions-in-headers): the namespace is unnamed, one per including file

constexpr std::size_t kGroup = 64;    // a multiple of every lane count and of 8, so groups start at whole bytes
constexpr std::size_t kBlock = 1024;  // values whose codes stay in the first-level cache between quantizing and packing

// ---- keys ----

template <KeyOf kOf>
inline Ints lane_keys(Floats v) {
  const Ints bits = bits_of(v);
  if constexpr (kOf == KeyOf::kMagnitude) return and_(bits, all_ints(0x7fffffff));
  return xor_(bits, and_(sign_of(bits), all_ints(0x7fffffff)));
}

inline KeyRange lane_range(Ints low, Ints high) {
  std::array<Key, kLanes> lows;
  std::array<Key, kLanes> highs;
  std::memcpy(lows.data(), &low, sizeof(low));
  std::memcpy(highs.data(), &high, sizeof(high));
  return {*std::min_element(lows.begin(), lows.end()), *std::max_element(highs.begin(), highs.end())};
}

template <KeyOf kOf>
KeyRange key_range_of(std::span<const float> x) {
  const std::size_t full = x.size() / kGroup * kGroup;
  if (full == 0) return scalar_impl::key_range(x, kOf);
  Ints low = lane_keys<kOf>(load_floats(x.data()));
  Ints high = low;
  Ints low2 = low;
  Ints high2 = low;
  for (std::size_t i = 0; i < full; i += 2 * kLanes) {
    const Ints a = lane_keys<kOf>(load_floats(x.data() + i));
    const Ints b = lane_keys<kOf>(load_floats(x.data() + i + kLanes));
    low = min(low, a);
    high = max(high, a);
    low2 = min(low2, b);
    high2 = max(high2, b);
  }
  KeyRange range = lane_range(min(low, low2), max(high, high2));
  if (full < x.size()) {
    const KeyRange rest = scalar_impl::key_range(x.subspan(full), kOf);
    range = {std::min(range.min, rest.min), std::max(range.max, rest.max)};
  }
  return range;
}

KeyRange key_range(std::span<const float> x, KeyOf of) {
  return of == KeyOf::kValue ? key_range_of<KeyOf::kValue>(x) : key_range_of<KeyOf::kMagnitude>(x);
}

// ---- energy: sixteen interleaved sums in registers; a float's square is exact in float64, so fma rounds like a product and a sum ----

EnergySum energy(std::span<const float> x) {
  constexpr std::size_t kSums = 16;
  constexpr std::size_t kRegistersOfSums = 2 * kSums / kLanes;
  const std::size_t full = x.size() / kSums * kSums;
  Doubles sums[kRegistersOfSums];  // NOLINT(*-avoid-c-arrays): a template would drop the alignment
  Ints zeros = all_ints(0);
  for (auto& sum : sums) sum = no_doubles();
  for (std::size_t i = 0; i < full; i += kSums) {
    for (std::size_t r = 0; r < kRegistersOfSums; ++r) sums[r] = add_squares(load_doubles(x.data() + i + r * kLanes / 2), sums[r]);
    for (std::size_t j = 0; j < kSums; j += kLanes) {
      zeros = count_if(zeros, equal(shift_left(bits_of(load_floats(x.data() + i + j)), 1), all_ints(0)));
    }
  }
  std::array<double, kSums> parts;
  std::memcpy(parts.data(), sums, sizeof parts);
  EnergySum all{0, full - sum(zeros)};
  for (std::size_t i = full; i < x.size(); ++i) {
    parts[0] += static_cast<double>(x[i]) * x[i];
    all.nonzero += x[i] != 0 ? 1U : 0U;
  }
  for (const double part : parts) all.energy += part;
  return all;
}

// ---- floats as bytes; what the compiler vectorises by itself is left to it ----

// Copies 32-bit words and returns the largest magnitude among them.
inline Key copy_words(const std::byte* from, std::byte* to, std::size_t count) {
  Key largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Key word;
    std::memcpy(&word, from + 4 * i, 4);
    largest = std::max(largest, word & 0x7fffffff);
    std::memcpy(to + 4 * i, &word, 4);
  }
  return largest;
}

bool store_fp32(std::span<const float> x, MutableBytes out) {
  return copy_words(std::as_bytes(x).data(), out.data(), x.size()) < kInfinityKey;
}

bool load_fp32(ByteView in, std::span<float> out) {
  return copy_words(in.data(), std::as_writable_bytes(out).data(), out.size()) < kInfinityKey;
}

bool store_fp16(std::span<const float> x, MutableBytes out) {
  const std::size_t full = x.size() / kGroup * kGroup;
  Ints largest = all_ints(0);
  for (std::size_t i = 0; i < full; i += kLanes) {
    const Floats v = load_floats(x.data() + i);
    largest = max(largest, lane_keys<KeyOf::kMagnitude>(v));
    store_halves(out.data() + 2 * i, v);
  }
  constexpr Key kOverflow = 0x477ff000;  // 65520: halfway between the largest half and the next step, rounds to Inf
  const bool finite = mask_bits(less(largest, all_ints(kOverflow))) == (1U << kLanes) - 1;
  return scalar_impl::store_fp16(x.subspan(full), out.subspan(2 * full)) && finite;
}

bool load_fp16(ByteView in, std::span<float> out) {
  const std::size_t full = out.size() / kGroup * kGroup;
  Ints largest = all_ints(0);
  for (std::size_t i = 0; i < full; i += kLanes) {
    const Floats v = load_halves(in.data() + 2 * i);
    largest = max(largest, lane_keys<KeyOf::kMagnitude>(v));
    store_floats(out.data() + i, v);
  }
  const bool finite = mask_bits(less(largest, all_ints(kInfinityKey))) == (1U << kLanes) - 1;
  return scalar_impl::load_fp16(in.subspan(2 * full), out.subspan(full)) && finite;
}

bool store_bf16(std::span<const float> x, MutableBytes out) {
  const float* from = x.data();
  std::byte* to = out.data();
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(from[i]);
    const std::uint32_t rounding = 0x7fff + ((bits >> 16) & 1);
    largest = std::max(largest, (bits & 0x7fffffff) + rounding);
    const auto bfloat = static_cast<std::uint16_t>((bits + rounding) >> 16);
    std::memcpy(to + 2 * i, &bfloat, 2);
  }
  return largest < 0x7f800000;
}

bool load_bf16(ByteView in, std::span<float> out) {
  const std::byte* from = in.data();
  float* to = out.data();
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bfloat;
    std::memcpy(&bfloat, from + 2 * i, 2);
    const std::uint32_t bits = static_cast<std::uint32_t>(bfloat) << 16;
    largest = std::max(largest, bits & 0x7fffffff);
    to[i] = std::bit_cast<float>(bits);
  }
  return largest < 0x7f800000;
}

// ---- packing: 8 codes become `bits` bytes ----

inline std::uint64_t load_word(const void* p) {
  std::uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

// The low `bits` of every 8-bit or 16-bit field of a word.
inline std::uint64_t field_mask(unsigned bits, unsigned field_bits) {
  const std::uint64_t one = (std::uint64_t{1} << bits) - 1;
  std::uint64_t mask = 0;
  for (unsigned at = 0; at < 64; at += field_bits) mask |= one << at;
  return mask;
}

__extension__ typedef unsigned __int128 Wide;  // NOLINT: only a typedef takes __extension__

inline Wide gather_codes(const std::uint8_t* codes, std::uint64_t mask, unsigned) { return _pext_u64(load_word(codes), mask); }
inline Wide gather_codes(const std::uint16_t* codes, std::uint64_t mask, unsigned bits) {
  return _pext_u64(load_word(codes), mask) | static_cast<Wide>(_pext_u64(load_word(codes + 4), mask)) << (4 * bits);
}
inline void spread_codes(Wide packed, std::uint64_t mask, unsigned, std::uint8_t* codes) {
  const std::uint64_t word = _pdep_u64(static_cast<std::uint64_t>(packed), mask);
  std::memcpy(codes, &word, 8);
}
inline void spread_codes(Wide packed, std::uint64_t mask, unsigned bits, std::uint16_t* codes) {
  const std::uint64_t low = _pdep_u64(static_cast<std::uint64_t>(packed), mask);
  const std::uint64_t high = _pdep_u64(static_cast<std::uint64_t>(packed >> (4 * bits)), mask);
  std::memcpy(codes, &low, 8);
  std::memcpy(codes + 4, &high, 8);
}

// count is a multiple of 8. Writes exactly count * bits / 8 bytes: whole words while that is safe, bytes at the end.
template <typename Code>
inline void pack(const Code* codes, std::size_t count, unsigned bits, std::byte* out) {
  const std::uint64_t mask = field_mask(bits, 8 * sizeof(Code));
  const std::size_t total = count * bits / 8;
  std::size_t at = 0;
  for (std::size_t i = 0; i < count; i += 8, at += bits) {
    const Wide packed = gather_codes(codes + i, mask, bits);
    if (at + sizeof(Wide) <= total) {
      std::memcpy(out + at, &packed, sizeof(Wide));
    } else {
      std::memcpy(out + at, &packed, bits);
    }
  }
}

template <typename Code>
inline void unpack(const std::byte* in, std::size_t count, unsigned bits, Code* codes) {
  const std::uint64_t mask = field_mask(bits, 8 * sizeof(Code));
  const std::size_t total = count * bits / 8;
  std::size_t at = 0;
  for (std::size_t i = 0; i < count; i += 8, at += bits) {
    Wide packed = 0;
    if (at + sizeof(Wide) <= total) {
      std::memcpy(&packed, in + at, sizeof(Wide));
    } else {
      std::memcpy(&packed, in + at, bits);
    }
    spread_codes(packed, mask, bits, codes + i);
  }
}

// Calls produce(first, count, codes) block by block; codes as wide as the field go straight to the output.
template <typename Code, typename Produce>
inline void pack_blocks(std::size_t values, unsigned bits, MutableBytes out, const Produce& produce) {
  alignas(64) std::array<Code, kBlock> codes;
  for (std::size_t i = 0; i < values; i += kBlock) {
    const std::size_t count = std::min(kBlock, values - i);
    std::byte* const to = out.data() + i * bits / 8;
    if (bits == 8 * sizeof(Code)) {
      produce(i, count, reinterpret_cast<Code*>(to));
    } else {
      produce(i, count, codes.data());
      pack(codes.data(), count, bits, to);
    }
  }
}

template <typename Code, typename Consume>
inline void unpack_blocks(ByteView in, std::size_t values, unsigned bits, const Consume& consume) {
  alignas(64) std::array<Code, kBlock> codes;
  for (std::size_t i = 0; i < values; i += kBlock) {
    const std::size_t count = std::min(kBlock, values - i);
    const std::byte* const from = in.data() + i * bits / 8;
    if (bits == 8 * sizeof(Code)) {
      consume(i, count, reinterpret_cast<const Code*>(from));
    } else {
      unpack(from, count, bits, codes.data());
      consume(i, count, codes.data());
    }
  }
}

// ---- quantizers ----

// A table too large for a register.
class LargeTable {
 public:
  explicit LargeTable(std::span<const float> table) : table_(table.data()) {}
  Floats operator[](Ints index) const { return gather(table_, index); }

 private:
  const float* table_;
};

// The last entry each lane reaches, by halving; entry 0 is reached by everything.
template <typename Table>
inline Ints search(Floats v, const Table& ascending, unsigned table_bits) {
  Ints found = all_ints(0);
  for (unsigned bit = table_bits; bit-- > 0;) {
    const Ints next = or_(found, all_ints(1 << bit));
    found = select(at_least(v, ascending[next]), next, found);
  }
  return found;
}

template <typename Table>
struct Quantizer {
  Table mins;
  Table divisors;
  unsigned split_bits;
  unsigned level_bits;
  Floats top;
  const float* x;

  explicit Quantizer(const RunTable& runs, const float* values)
      : mins(runs.mins()),
        divisors(runs.divisors()),
        split_bits(runs.split_bits()),
        level_bits(runs.level_bits()),
        top(all_floats(static_cast<float>((1U << runs.level_bits()) - 1))),
        x(values) {}

  template <typename Code>
  void operator()(std::size_t first, std::size_t count, Code* codes) const {
    for (std::size_t i = 0; i < count; i += kLanes) {
      const Floats v = load_floats(x + first + i);
      const Ints run = search(v, mins, split_bits);
      const Floats level = min(div(sub(v, mins[run]), divisors[run]), top);
      store_codes(codes + i, or_(shift_left(run, level_bits), round_to_ints(level)));
    }
  }
};

template <typename Table>
struct Searcher {
  Table thresholds;
  unsigned bits;
  const float* x;

  template <typename Code>
  void operator()(std::size_t first, std::size_t count, Code* codes) const {
    for (std::size_t i = 0; i < count; i += kLanes) store_codes(codes + i, search(load_floats(x + first + i), thresholds, bits));
  }
};

template <typename Table>
struct Dequantizer {
  Table mins;
  Table steps;
  unsigned level_bits;
  Ints level_mask;
  float* out;

  explicit Dequantizer(const RunTable& runs, float* values)
      : mins(runs.mins()),
        steps(runs.steps()),
        level_bits(runs.level_bits()),
        level_mask(all_ints((1 << runs.level_bits()) - 1)),
        out(values) {}

  template <typename Code>
  void operator()(std::size_t first, std::size_t count, const Code* codes) const {
    for (std::size_t i = 0; i < count; i += kLanes) {
      const Ints code = load_codes(codes + i);
      const Ints run = shift_right(code, level_bits);
      store_floats(out + first + i, fma(to_floats(and_(code, level_mask)), steps[run], mins[run]));
    }
  }
};

struct TableDecoder {
  std::span<const float> table;
  float* out;

  template <typename Code>
  void operator()(std::size_t first, std::size_t count, const Code* codes) const {
    for (std::size_t i = 0; i < count; ++i) {
      Code code;  // payloads start at any byte
      std::memcpy(&code, codes + i, sizeof(code));
      out[first + i] = table[std::min<std::size_t>(code, table.size() - 1)];
    }
  }
};

template <typename Produce>
inline void pack_any(std::size_t values, unsigned bits, MutableBytes out, const Produce& produce) {
  bits <= 8 ? pack_blocks<std::uint8_t>(values, bits, out, produce) : pack_blocks<std::uint16_t>(values, bits, out, produce);
}
template <typename Consume>
inline void unpack_any(ByteView in, std::size_t values, unsigned bits, const Consume& consume) {
  bits <= 8 ? unpack_blocks<std::uint8_t>(in, values, bits, consume) : unpack_blocks<std::uint16_t>(in, values, bits, consume);
}

void encode_runs(std::span<const float> x, const RunTable& runs, MutableBytes out) {
  const std::size_t full = x.size() / kGroup * kGroup;
  if (runs.mins().size() <= SmallTable::kMaxSize) {
    pack_any(full, runs.bits(), out, Quantizer<SmallTable>(runs, x.data()));
  } else {
    pack_any(full, runs.bits(), out, Quantizer<LargeTable>(runs, x.data()));
  }
  scalar_impl::encode_runs(x.subspan(full), runs, out.subspan(full * runs.bits() / 8));
}

void decode_runs(ByteView in, const RunTable& runs, std::span<float> out) {
  const std::size_t full = out.size() / kGroup * kGroup;
  if (runs.mins().size() <= SmallTable::kMaxSize) {
    unpack_any(in, full, runs.bits(), Dequantizer<SmallTable>(runs, out.data()));
  } else {
    unpack_any(in, full, runs.bits(), Dequantizer<LargeTable>(runs, out.data()));
  }
  scalar_impl::decode_runs(in.subspan(full * runs.bits() / 8), runs, out.subspan(full));
}

void encode_search(std::span<const float> x, std::span<const float> thresholds, unsigned bits, MutableBytes out) {
  const std::size_t full = x.size() / kGroup * kGroup;
  if (thresholds.size() <= SmallTable::kMaxSize) {
    pack_any(full, bits, out, Searcher<SmallTable>{SmallTable(thresholds), bits, x.data()});
  } else {
    pack_any(full, bits, out, Searcher<LargeTable>{LargeTable(thresholds), bits, x.data()});
  }
  scalar_impl::encode_search(x.subspan(full), thresholds, bits, out.subspan(full * bits / 8));
}

void decode_table(ByteView in, std::span<const float> table, unsigned bits, std::span<float> out) {
  const std::size_t full = out.size() / kGroup * kGroup;
  unpack_any(in, full, bits, TableDecoder{table, out.data()});
  scalar_impl::decode_table(in.subspan(full * bits / 8), table, bits, out.subspan(full));
}

#include "epipe/codec/kernels/simd_brackets.inc.h"
#include "epipe/codec/kernels/simd_entropy.inc.h"
#include "epipe/codec/kernels/simd_raw.inc.h"

constexpr Kernels simd_table(std::string_view name) {
  return {name,          key_range,     energy,      store_fp32,    load_fp32,     store_fp16,     load_fp16,        store_bf16,
          load_bf16,     encode_runs,   decode_runs, encode_search, decode_table,  scan_brackets,  transform_blocks, multiply_channels,
          reflect,       quantize,      look_up,     magnitudes_of, parent_levels, running_levels, neighbour_levels, map_bytes,
          encode_tokens, decode_tokens, decode_two,  write_raw,     read_raw};
}

// NOLINTEND(misc-definitions-in-headers)
