// The entropy coder's kernels in terms of the lane operations of avx2.cpp and avx512.cpp, as in simd.inc.h.
// NOLINTBEGIN(misc-definitions-in-headers): the namespace is unnamed, one per including file

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
  const std::size_t full = tokens.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < full; i += kLanes) {
    store_floats(out + i, gather(values, add(shift_left(load_codes(table_of + i), 7), load_codes(tokens.data() + i))));
  }
  scalar_impl::look_up(tokens.subspan(full), table_of + full, values, out + full);
}

void map_bytes(std::span<const std::uint8_t> in, const std::array<std::uint8_t, 16>& map, std::uint8_t* out) {
  constexpr std::size_t kBytes = 4 * kLanes;
  const std::size_t full = in.size() / kBytes * kBytes;
  const Ints table = sixteen_bytes(map.data());
  for (std::size_t i = 0; i < full; i += kBytes) store_bytes(out + i, shuffle_bytes(table, load_bytes(in.data() + i)));
  scalar_impl::map_bytes(in.subspan(full), map, out + full);
}

// ---- contexts ----

void magnitudes_of(std::span<const std::uint8_t> tokens, std::uint8_t* __restrict out) {
  const std::uint8_t* const __restrict from = tokens.data();
  for (std::size_t i = 0; i < tokens.size(); ++i) {  // the compiler does this one
    const auto token = static_cast<std::uint8_t>(from[i] < 2 * kMaxMagnitude ? from[i] : 2 * kMaxMagnitude);
    out[i] = static_cast<std::uint8_t>((token + 1U) >> 1U);
  }
}

constexpr std::size_t kByteLanes = 4 * kLanes;
constexpr std::size_t kWordLanes = 2 * kLanes;

void parent_levels(const ParentPlanes& p, std::size_t n, std::uint8_t* out) {
  const std::size_t full = n / kByteLanes * kByteLanes;
  for (std::size_t i = 0; i < full; i += kByteLanes) {
    const Ints near = add_bytes(load_bytes(p.above + i), load_bytes(p.left + i));
    const Ints far = add_bytes(add_bytes(load_bytes(p.above2 + i), load_bytes(p.left2 + i)), load_bytes(p.diagonal + i));
    const Ints sum = add_bytes(add_bytes(near, near), far);
    Ints level = all_ints(0);
    for (const std::uint8_t limit : kParentLimits) level = count_reached_bytes(level, sum, all_bytes(limit));
    store_bytes(out + i, level);
  }
  scalar_impl::parent_levels({p.above + full, p.left + full, p.diagonal + full, p.above2 + full, p.left2 + full}, n - full, out + full);
}

void running_levels(const std::uint8_t* before, std::size_t n, std::uint16_t* means, std::uint8_t* out) {
  const std::size_t full = n / kWordLanes * kWordLanes;
  for (std::size_t i = 0; i < full; i += kWordLanes) {
    const Ints mean = decayed_words(load_words(means + i), widen_bytes(before + i));
    store_words(means + i, mean);
    Ints level = all_words(1);
    for (const std::uint16_t limit : kRunningLimits) level = count_reached_words(level, mean, all_words(limit));
    narrow_words(out + i, level);
  }
  scalar_impl::running_levels(before + full, n - full, means + full, out + full);
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

// ---- rANS: kMaxStates lanes in several registers; other lane counts are for small tensors and go through the reference ----

constexpr std::size_t kRegisters = kMaxStates / kLanes;
static_assert(kTokenRoom == 128);

inline void encode_register(Ints& state, std::byte*& out, const std::uint8_t* tokens, const std::uint8_t* table_of,
                            const std::uint32_t* tables) {
  const Ints entry = gather(tables, add(shift_left(load_codes(table_of), 7), load_codes(tokens)));
  const Ints frequency = shift_right(entry, 16);
  Ints x = state;
  const Mask spill = not_less(shift_right(x, 20), frequency);
  out = store_words_before(out, x, mask_bits(spill));
  x = select(spill, shift_right(x, 16), x);
  // x / frequency is below 2^20: a float quotient is off by at most one.
  Ints quotient = truncate_to_ints(div(to_floats(shift_right(x, 1)), mul(to_floats(frequency), all_floats(0.5F))));
  Ints rest = sub(x, multiply(quotient, frequency));
  const Mask low = less(rest, all_ints(0));
  quotient = sub(quotient, keep_if(low, all_ints(1)));
  rest = add(rest, keep_if(low, frequency));
  const Mask high = not_less(rest, frequency);
  quotient = add(quotient, keep_if(high, all_ints(1)));
  rest = sub(rest, keep_if(high, frequency));
  state = add(add(shift_left(quotient, kProbabilityBits), rest), and_(entry, all_ints(0xffff)));
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
  const Ints entry = gather(tables, add(shift_left(load_codes(table_of), kProbabilityBits), and_(x, low_bits)));
  store_codes(tokens, and_(entry, all_ints(0xff)));
  const Ints frequency = add(and_(shift_right(entry, 8), low_bits), all_ints(1));
  x = add(multiply(frequency, shift_right(x, kProbabilityBits)), shift_right(entry, 20));
  const Mask hungry = equal(shift_right(x, 16), all_ints(0));
  const unsigned bits = mask_bits(hungry);
  state = select(hungry, or_(shift_left(x, 16), spread_words(in, bits)), x);
  in += 2 * static_cast<std::ptrdiff_t>(__builtin_popcount(bits));
}

bool decode_tokens(RansDecoder& decoder, std::span<std::uint8_t> tokens, const std::uint8_t* table_of, const std::uint32_t* tables) {
  if (decoder.lanes != kMaxStates) return scalar_impl::decode_tokens(decoder, tokens, table_of, tables);
  Ints states[kRegisters];  // NOLINT(*-avoid-c-arrays): a template would drop the alignment
  for (std::size_t r = 0; r < kRegisters; ++r) states[r] = load_ints(decoder.states.data() + r * kLanes);
  const std::byte* in = decoder.in;
  std::size_t i = 0;
  // Whole registers of words are loaded, so the last few words are left to the reference.
  const auto one = [&](std::size_t r) {
    decode_register(states[r], in, tokens.data() + i, table_of + i, tables);
    i += kLanes;
  };
  constexpr auto kRoom = static_cast<std::ptrdiff_t>(2 * kMaxStates);
  while (i + kMaxStates <= tokens.size() && decoder.end - in >= kRoom) {
    for (std::size_t r = 0; r < kRegisters; ++r) one(r);
  }
  for (std::size_t r = 0; i + kLanes <= tokens.size() && r + 1 < kRegisters && decoder.end - in >= kRoom; ++r) one(r);
  decoder.in = in;
  for (std::size_t r = 0; r < kRegisters; ++r) store_ints(decoder.states.data() + r * kLanes, states[r]);
  return scalar_impl::decode_tokens_from(i, decoder, tokens.subspan(i), table_of + i, tables);
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
