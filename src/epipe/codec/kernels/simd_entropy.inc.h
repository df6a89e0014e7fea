// The entropy coder's kernels in terms of the lane operations of avx2.cpp and avx512.cpp, as in simd.inc.h.
// NOLINTBEGIN(misc-definitions-in-headers): the namespace is unnamed, one per including file

constexpr std::size_t kByteLanes = 4 * kLanes;

// Calls each(i) for steps that cover 0 ... n - 1; the last may overlap the one before it. Rows are short, so what would be left over
// matters. n is at least kStep.
template <std::size_t kStep, typename Each>
inline void cover(std::size_t n, Each&& each) {
  std::size_t i = 0;
  for (; i + kStep <= n; i += kStep) each(i);
  if (i < n) each(n - kStep);
}

// ---- tokens ----

void quantize(std::span<const float> y, const DeadZone& zone, std::uint8_t* tokens) {
  const std::size_t full = y.size() / kLanes * kLanes;
  const Floats scale = all_floats(zone.scale);
  const Floats threshold = all_floats(zone.threshold);
  const Floats offset = all_floats(zone.offset);
  for (std::size_t i = 0; i < full; i += kLanes) {
    const Ints bits = bits_of(load_floats(y.data() + i));
    const Ints sign = and_(sign_of(bits), all_ints(1));
    const Floats a = mul(as_floats(and_(bits, all_ints(0x7fffffff))), scale);
    const Ints level = keep_if(at_least(a, threshold), truncate_to_ints(add(a, offset)));
    const Ints octaves = sub(shift_right(bits_of(to_floats(level)), 22), all_ints(kHalfOctaves));
    const Ints large = add(shift_left(octaves, 1), add(sign, all_ints(kFirstEscape)));
    const Ints small = keep_if(less(all_ints(0), level), add(shift_left(level, 1), sub(sign, all_ints(1))));
    store_codes(tokens + i, select(less(all_ints(kMaxMagnitude), level), large, small));
  }
  scalar_impl::quantize(y.subspan(full), zone, tokens + full);
}

void look_up(std::span<const std::uint8_t> tokens, const std::uint8_t* table_of, const float* values, float* out) {
  if (tokens.size() < kLanes) return scalar_impl::look_up(tokens, table_of, values, out);
  cover<kLanes>(tokens.size(), [&](std::size_t i) {
    const Ints index = add(shift_left(load_codes(table_of + i), 7), load_codes(tokens.data() + i));
    store_floats(out + i, as_floats(pick(reinterpret_cast<const std::uint32_t*>(values), index)));
  });
}

void map_bytes(std::span<const std::uint8_t> in, const std::array<std::uint8_t, 16>& map, std::uint8_t* out) {
  if (in.size() < kByteLanes) return scalar_impl::map_bytes(in, map, out);
  const Ints table = sixteen_bytes(map.data());
  const Ints last = load_bytes(in.data() + in.size() - kByteLanes);  // before `out`, which may be `in`, is written
  for (std::size_t i = 0; i + kByteLanes <= in.size(); i += kByteLanes) {
    store_bytes(out + i, shuffle_bytes(table, load_bytes(in.data() + i)));
  }
  store_bytes(out + in.size() - kByteLanes, shuffle_bytes(table, last));
}

// ---- contexts ----

void magnitudes_of(std::span<const std::uint8_t> tokens, std::uint8_t* __restrict out) {
  const std::uint8_t* const __restrict from = tokens.data();
  for (std::size_t i = 0; i < tokens.size(); ++i) {  // the compiler does this one
    const auto token = static_cast<std::uint8_t>(from[i] < 2 * kMaxMagnitude ? from[i] : 2 * kMaxMagnitude);
    out[i] = static_cast<std::uint8_t>((token + 1U) >> 1U);
  }
}

void parent_levels(const ParentPlanes& p, std::size_t n, std::uint8_t* out) {
  if (n < kByteLanes) return scalar_impl::parent_levels(p, n, out);
  cover<kByteLanes>(n, [&](std::size_t i) {
    const Ints near = add_bytes(load_bytes(p.above + i), load_bytes(p.left + i));
    const Ints far = add_bytes(add_bytes(load_bytes(p.above2 + i), load_bytes(p.left2 + i)), load_bytes(p.diagonal + i));
    const Ints sum = add_bytes(add_bytes(near, near), far);
    Ints level = all_ints(0);
    for (const std::uint8_t limit : kParentLimits) level = count_reached_bytes(level, sum, all_bytes(limit));
    store_bytes(out + i, level);
  });
}

// Limits above the first are multiples of 8, so eighths of the means, which fit a byte, reach the same ones.
constexpr std::size_t kWordLanes = 2 * kLanes;
static_assert(kRunningLimits[0] == 1 && 128 * kMaxMagnitude / 8 < 256);

struct RunningMeans {
  Ints low, high;  // of kByteLanes columns

  RunningMeans(const std::uint16_t* means, const std::uint8_t* before)
      : low(decayed_words(load_words(means), widen_bytes(before))),
        high(decayed_words(load_words(means + kWordLanes), widen_bytes(before + kWordLanes))) {}

  void store(std::uint16_t* means, std::uint8_t* levels) const {
    store_words(means, low);
    store_words(means + kWordLanes, high);
    const Ints eighths = narrow_words(eighth_words(low), eighth_words(high));
    Ints level = add_bytes(all_bytes(1), narrow_words(at_most_one(low), at_most_one(high)));
    for (std::size_t k = 1; k < kRunningLimits.size(); ++k) {
      level = count_reached_bytes(level, eighths, all_bytes(static_cast<std::uint8_t>(kRunningLimits[k] / 8)));
    }
    store_bytes(levels, level);
  }
};

void running_levels(const std::uint8_t* before, std::size_t n, std::uint16_t* means, std::uint8_t* out) {
  if (n < kByteLanes) return scalar_impl::running_levels(before, n, means, out);
  const std::size_t end = n - kByteLanes;
  const RunningMeans last(means + end, before + end);  // before the means are written
  for (std::size_t i = 0; i + kByteLanes <= n; i += kByteLanes) RunningMeans(means + i, before + i).store(means + i, out + i);
  last.store(means + end, out + end);
}

void neighbour_levels(const std::uint8_t* before, std::size_t n, std::uint8_t* out) {
  if (n < kByteLanes + 2) return scalar_impl::neighbour_levels(before, n, out);
  // The last register overlaps the one before it, so that nothing beyond the row is read.
  for (std::size_t next = 1; next < n - 1; next += kByteLanes) {
    const std::size_t i = std::min(next, n - 1 - kByteLanes);
    const Ints own = load_bytes(before + i);
    const Ints sum = add_bytes(add_bytes(own, own), add_bytes(load_bytes(before + i - 1), load_bytes(before + i + 1)));
    Ints level = all_bytes(1);
    for (const std::uint8_t limit : kNeighbourLimits) level = count_reached_bytes(level, sum, all_bytes(limit));
    store_bytes(out + i, level);
  }
  std::array<std::uint8_t, 2> ends;
  scalar_impl::neighbour_levels(before, 2, ends.data());
  out[0] = ends[0];
  scalar_impl::neighbour_levels(before + n - 2, 2, ends.data());
  out[n - 1] = ends[1];
}

// 1 / f, or less by up to 7e-7 of it: after one step of Newton's an estimate with 12 bits is below, or above by rounding, 2.6e-7 at most.
inline Floats lower_inverse(Floats f) {
  const Floats estimate = estimated_inverse(f);
  const Floats better = mul(estimate, sub(all_floats(2), mul(estimate, f)));
  return mul(better, all_floats(1 - 4.2e-7F));
}

// ---- rANS: kMaxStates lanes in several registers; other lane counts are for small tensors and go through the reference ----

constexpr std::size_t kRegisters = kMaxStates / kLanes;
static_assert(kTokenRoom == 128);

inline void encode_register(Ints& state, std::byte*& out, const std::uint8_t* tokens, const std::uint8_t* table_of,
                            const std::uint32_t* tables) {
  const Ints entry = pick(tables, add(shift_left(load_codes(table_of), 7), load_codes(tokens)));
  const Ints frequency = shift_right(entry, 16);
  const Floats inverse = lower_inverse(to_floats(frequency));
  const Ints gap = sub(all_ints(kProbabilityScale), frequency);
  Ints x = state;
  const Mask spill = not_less(shift_right(x, 20), frequency);
  out = store_words_before(out, x, mask_bits(spill));
  x = select(spill, shift_right(x, 16), x);
  // x / frequency is below 2^20, and the product is low by less than 2^-20 of it: by one at most.
  Ints quotient = truncate_to_ints(mul(unsigned_to_floats(x), inverse));
  quotient = count_if(quotient, not_less(sub(x, multiply(quotient, frequency)), frequency));
  state = add(add(x, multiply(quotient, gap)), and_(entry, all_ints(0xffff)));  // quotient << 12 | rest, and the start
}

void encode_tokens(RansEncoder& encoder, std::span<const std::uint8_t> tokens, const std::uint8_t* table_of, const std::uint32_t* tables) {
  if (encoder.lanes != kMaxStates) return scalar_impl::encode_tokens(encoder, tokens, table_of, tables);
  const std::size_t full = tokens.size() / kLanes * kLanes;
  scalar_impl::encode_tokens_from(full, encoder, tokens.subspan(full), table_of + full, tables);
  Ints states[kRegisters];  // NOLINT(*-avoid-c-arrays): a template would drop the alignment
  for (std::size_t r = 0; r < kRegisters; ++r) states[r] = load_ints(encoder.states.data() + r * kLanes);
  std::byte* out = encoder.out;
  std::size_t i = full;
  const auto one = [&](std::size_t r) {
    i -= kLanes;
    encode_register(states[r], out, tokens.data() + i, table_of + i, tables);
  };
  for (std::size_t r = full / kLanes % kRegisters; r-- > 0;) one(r);
  while (i > 0) {
    for (std::size_t r = kRegisters; r-- > 0;) one(r);
  }
  encoder.out = out;
  for (std::size_t r = 0; r < kRegisters; ++r) store_ints(encoder.states.data() + r * kLanes, states[r]);
}

inline void decode_register(Ints& state, const std::byte*& in, std::uint8_t* tokens, const std::uint8_t* table_of,
                            const std::uint32_t* tables) {
  const Ints low_bits = all_ints(kProbabilityScale - 1);
  Ints x = state;
  const Ints entry = pick(tables, add(shift_left(load_codes(table_of), kProbabilityBits), and_(x, low_bits)));
  store_codes(tokens, and_(entry, all_ints(0xff)));
  const Ints frequency = add(and_(shift_right(entry, 8), low_bits), all_ints(1));
  x = add(multiply(frequency, shift_right(x, kProbabilityBits)), shift_right(entry, 20));
  const Mask hungry = equal(shift_right(x, 16), all_ints(0));
  const unsigned bits = mask_bits(hungry);
  state = select(hungry, or_(shift_left(x, 16), spread_words(in, bits)), x);
  in += 2 * static_cast<std::ptrdiff_t>(__builtin_popcount(bits));
}

// A run of symbols on its way through the registers.
class RunDecoder {
 public:
  RunDecoder(const TokenRun& run, const std::uint32_t* tables) : run_(run), tables_(tables), in_(run.decoder->in) {
    for (std::size_t r = 0; r < kRegisters; ++r) states_[r] = load_ints(run.decoder->states.data() + r * kLanes);
  }
  // Whole registers of words are loaded, so the last few words are left to the reference.
  bool has(std::size_t symbols) const {
    constexpr auto kRoom = static_cast<std::ptrdiff_t>(2 * kMaxStates);
    return at_ + symbols <= run_.tokens.size() && run_.decoder->end - in_ >= kRoom;
  }
  void decode(std::size_t r) {
    decode_register(states_[r], in_, run_.tokens.data() + at_, run_.table_of + at_, tables_);
    at_ += kLanes;
  }
  // All that is left.
  bool finish() {
    while (has(kMaxStates)) {
      for (std::size_t r = 0; r < kRegisters; ++r) decode(r);
    }
    for (std::size_t r = 0; r + 1 < kRegisters && has(kLanes); ++r) decode(r);
    run_.decoder->in = in_;
    for (std::size_t r = 0; r < kRegisters; ++r) store_ints(run_.decoder->states.data() + r * kLanes, states_[r]);
    return scalar_impl::decode_tokens_from(at_, *run_.decoder, run_.tokens.subspan(at_), run_.table_of + at_, tables_);
  }

 private:
  TokenRun run_;
  const std::uint32_t* tables_;
  const std::byte* in_;
  std::size_t at_ = 0;
  Ints states_[kRegisters];  // NOLINT(*-avoid-c-arrays): a template would drop the alignment
};

bool decode_tokens(RansDecoder& decoder, std::span<std::uint8_t> tokens, const std::uint8_t* table_of, const std::uint32_t* tables) {
  if (decoder.lanes != kMaxStates) return scalar_impl::decode_tokens(decoder, tokens, table_of, tables);
  return RunDecoder({&decoder, tokens, table_of}, tables).finish();
}

bool decode_two(const TokenRun& a, const TokenRun& b, const std::uint32_t* tables) {
  if (a.decoder->lanes != kMaxStates || b.decoder->lanes != kMaxStates) return scalar_impl::decode_two(a, b, tables);
  RunDecoder first(a, tables);
  RunDecoder second(b, tables);
  while (first.has(kMaxStates) && second.has(kMaxStates)) {
    for (std::size_t r = 0; r < kRegisters; ++r) {
      first.decode(r);
      second.decode(r);
    }
  }
  const bool complete = first.finish();
  return second.finish() && complete;
}

// ---- block transforms ----

// out[k][...] = sum over x of matrix[k][x] in[x][...] for vectors that lie `in_step` and `out_step` floats apart; four sums at a time.
template <std::size_t kSums>
inline void multiply_rows(const float* matrix, std::size_t n, const float* in, std::size_t in_step, float* out, std::size_t out_step) {
  Floats sums[kSums];  // NOLINT(*-avoid-c-arrays): as above
  const Floats first = load_floats(in);
  for (std::size_t k = 0; k < kSums; ++k) sums[k] = mul(all_floats(matrix[k * n]), first);
  for (std::size_t x = 1; x < n; ++x) {
    const Floats v = load_floats(in + x * in_step);
    for (std::size_t k = 0; k < kSums; ++k) sums[k] = fma(all_floats(matrix[k * n + x]), v, sums[k]);
  }
  for (std::size_t k = 0; k < kSums; ++k) store_floats(out + k * out_step, sums[k]);
}

inline void multiply_all(const float* matrix, std::size_t rows, std::size_t n, const float* in, std::size_t in_step, float* out,
                         std::size_t out_step) {
  std::size_t k = 0;
  for (; k + 4 <= rows; k += 4) multiply_rows<4>(matrix + k * n, n, in, in_step, out + k * out_step, out_step);
  for (; k < rows; ++k) multiply_rows<1>(matrix + k * n, n, in, in_step, out + k * out_step, out_step);
}

void transform_blocks(const BlockTransform& t, const float* in, std::size_t in_stride, float* out, std::size_t out_stride) {
  std::array<float, kMaxEdge * kMaxEdge * kLanes> half;
  for (std::size_t g = 0; g < kBatch; g += kLanes) {
    for (std::size_t r = 0; r < t.height; ++r) {
      multiply_all(t.columns, t.width, t.width, in + r * t.width * in_stride + g, in_stride, half.data() + r * t.width * kLanes, kLanes);
    }
    for (std::size_t v = 0; v < t.width; ++v) {
      multiply_all(t.rows, t.height, t.height, half.data() + v * kLanes, t.width * kLanes, out + v * out_stride + g, t.width * out_stride);
    }
  }
}

void multiply_channels(const ChannelMatrix& by, const float* in, std::size_t in_stride, std::size_t places, float* out,
                       std::size_t out_stride) {
  const std::size_t full = places / kLanes * kLanes;
  for (std::size_t p = 0; p < full; p += kLanes) multiply_all(by.matrix, by.rows, by.channels, in + p, in_stride, out + p, out_stride);
  scalar_impl::multiply_channels(by, in + full, in_stride, places - full, out + full, out_stride);
}

void reflect(const ReflectionRows& reflections, bool backwards, float* row) {
  constexpr std::size_t kSums = ReflectionRows::kSums;
  constexpr std::size_t kVectors = kSums / kLanes;
  for (std::size_t i = 0; i < reflections.count; ++i) {
    const std::size_t k = backwards ? reflections.count - 1 - i : i;
    const float* const w = reflections.rows + k * reflections.length;
    Floats sums[kVectors];  // NOLINT(*-avoid-c-arrays): as above
    for (std::size_t r = 0; r < kVectors; ++r) sums[r] = all_floats(0);
    for (std::size_t c = 0; c < reflections.length; c += kSums) {
      for (std::size_t r = 0; r < kVectors; ++r) {
        sums[r] = fma(load_floats(w + c + r * kLanes), load_floats(row + c + r * kLanes), sums[r]);
      }
    }
    for (std::size_t half = kVectors / 2; half > 0; half /= 2) {
      for (std::size_t r = 0; r < half; ++r) sums[r] = add(sums[r], sums[r + half]);
    }
    std::array<float, kLanes> parts;
    store_floats(parts.data(), sums[0]);
    const Floats amount = all_floats(-(reflections.scales[k] * scalar_impl::add_up(parts.data(), kLanes)));
    for (std::size_t c = 0; c < reflections.length; c += kLanes) {
      store_floats(row + c, fma(load_floats(w + c), amount, load_floats(row + c)));
    }
  }
}

// NOLINTEND(misc-definitions-in-headers)
