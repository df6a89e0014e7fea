// Raw bits of large levels, eight symbols at a time in registers of 256 bits, whatever the including file's are. As in simd.inc.h.
// NOLINTBEGIN(misc-definitions-in-headers): the namespace is unnamed, one per including file
//
//   tokens       5   0  33   2   31  0   0  40      bytes of a word
//   widths       0   0   3   0    3  0   0   5      3 + (token - 31) / 4 where it is an escape
//   starts       0   0   0   3    3  6   6   6      the sums of the widths before: times 0x0101...01, shifted by a byte

constexpr std::uint64_t kByteOnes = 0x0101010101010101;
constexpr unsigned kMostRawBits = 56;  // that eight symbols may have here: what the bit streams take at once

struct RawFields {
  std::uint64_t widths = 0;
  std::uint64_t starts = 0;
  unsigned total = 0;

  explicit RawFields(const std::uint8_t* tokens) {
    const std::uint64_t eight = load_word(tokens);
    const std::uint64_t escapes = (eight + (128 - kFirstEscape) * kByteOnes) >> 7 & kByteOnes;
    if (escapes == 0) return;
    const std::uint64_t kept = escapes * 0xff;
    constexpr std::uint64_t kBias = (kFirstEscape - 12) * kByteOnes;  // 3 + (token - 31) / 4 = (token - 19) / 4
    widths = ((eight & kept) - (kBias & kept)) >> 2 & 0x3f * kByteOnes;
    const std::uint64_t sums = widths * kByteOnes;
    starts = sums << 8;
    total = static_cast<unsigned>(sums >> 56);
  }
  __m256i width_lanes() const { return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(widths))); }
  __m256i low_bits() const {  // of each width
    return _mm256_sub_epi32(_mm256_sllv_epi32(_mm256_set1_epi32(1), width_lanes()), _mm256_set1_epi32(1));
  }
  // Where fields 0 ... 3 and 4 ... 7 start.
  __m256i first_starts() const { return _mm256_cvtepu8_epi64(_mm_cvtsi64_si128(static_cast<long long>(starts))); }
  __m256i last_starts() const { return _mm256_cvtepu8_epi64(_mm_cvtsi64_si128(static_cast<long long>(starts >> 32))); }
};

inline std::uint64_t join_lanes(__m256i v) {
  const __m128i half = _mm_or_si128(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(half) | _mm_extract_epi64(half, 1));
}

void write_raw(std::span<const std::uint8_t> tokens, const float* y, const DeadZone& zone, BitWriter& out) {
  const std::size_t full = tokens.size() / 8 * 8;
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  for (std::size_t i = 0; i < full; i += 8) {
    const RawFields fields(tokens.data() + i);
    if (fields.total == 0) continue;
    if (fields.total > kMostRawBits) {
      scalar_impl::write_raw(tokens.subspan(i, 8), y + i, zone, out);
      continue;
    }
    const __m256 a = _mm256_mul_ps(_mm256_and_ps(_mm256_loadu_ps(y + i), magnitude), _mm256_set1_ps(zone.scale));
    const __m256i level = _mm256_cvttps_epi32(_mm256_add_ps(a, _mm256_set1_ps(zone.offset)));
    const __m256i raw = _mm256_and_si256(level, fields.low_bits());
    const __m256i first = _mm256_sllv_epi64(_mm256_cvtepu32_epi64(_mm256_castsi256_si128(raw)), fields.first_starts());
    const __m256i last = _mm256_sllv_epi64(_mm256_cvtepu32_epi64(_mm256_extracti128_si256(raw, 1)), fields.last_starts());
    out.put(join_lanes(_mm256_or_si256(first, last)), fields.total);
  }
  scalar_impl::write_raw(tokens.subspan(full), y + full, zone, out);
}

bool read_raw(std::span<const std::uint8_t> tokens, float step, BitReader& in, float* y) {
  const std::size_t full = tokens.size() / 8 * 8;
  for (std::size_t i = 0; i < full; i += 8) {
    const RawFields fields(tokens.data() + i);
    if (fields.total == 0) continue;
    if (fields.total > kMostRawBits || in.available() < fields.total) {
      if (!scalar_impl::read_raw(tokens.subspan(i, 8), step, in, y + i)) return false;
      continue;
    }
    const __m256i word = _mm256_set1_epi64x(static_cast<long long>(in.take(fields.total)));
    const __m256 first = _mm256_castsi256_ps(_mm256_srlv_epi64(word, fields.first_starts()));
    const __m256 last = _mm256_castsi256_ps(_mm256_srlv_epi64(word, fields.last_starts()));
    const __m256i lows = _mm256_castps_si256(_mm256_shuffle_ps(first, last, 0x88));  // low halves of 0 1 4 5 2 3 6 7
    const __m256i raw = _mm256_and_si256(_mm256_permute4x64_epi64(lows, 0xd8), fields.low_bits());
    const __m256i token = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(tokens.data() + i)));
    const __m256i past = _mm256_sub_epi32(token, _mm256_set1_epi32(kFirstEscape));
    const __m256i half_octave = _mm256_and_si256(_mm256_srli_epi32(past, 1), _mm256_set1_epi32(1));
    const __m256i base = _mm256_sllv_epi32(_mm256_add_epi32(half_octave, _mm256_set1_epi32(2)), fields.width_lanes());
    const __m256 level = _mm256_cvtepi32_ps(_mm256_add_epi32(base, raw));
    const __m256 old = _mm256_loadu_ps(y + i);
    const __m256 value = _mm256_mul_ps(_mm256_sub_ps(level, old), _mm256_set1_ps(step));
    const __m256 sign = _mm256_castsi256_ps(_mm256_slli_epi32(past, 31));  // the second token of a pair is the negative one
    const __m256 escape = _mm256_castsi256_ps(_mm256_cmpgt_epi32(token, _mm256_set1_epi32(kFirstEscape - 1)));
    _mm256_storeu_ps(y + i, _mm256_blendv_ps(old, _mm256_xor_ps(value, sign), escape));
  }
  return scalar_impl::read_raw(tokens.subspan(full), step, in, y + full);
}

// NOLINTEND(misc-definitions-in-headers)
