// The SIMD kernels for AVX-512 (F, BW, DQ, VL): 16 lanes, masks in registers of their own.
#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "epipe/base/cpu_level.h"
#include "epipe/codec/kernels/bits.h"
#include "epipe/codec/kernels/key.h"
#include "epipe/codec/kernels/rans.h"
#include "epipe/codec/kernels/scalar.h"
#include "epipe/codec/kernels/target.h"
#include "epipe/codec/kernels/transform.h"

EPIPE_BEGIN_TARGET("avx2,fma,f16c,bmi,bmi2,popcnt,avx512f,avx512bw,avx512dq,avx512vl")

namespace epipe::kernels {
namespace {

constexpr std::size_t kLanes = 16;
using Floats = __m512;
using Ints = __m512i;
using Mask = __mmask16;
using Doubles = __m512d;

inline Doubles no_doubles() { return _mm512_setzero_pd(); }
inline Doubles load_doubles(const float* p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
inline Doubles add_squares(Doubles v, Doubles sums) { return _mm512_fmadd_pd(v, v, sums); }
inline Floats load_floats(const float* p) { return _mm512_loadu_ps(p); }
inline void store_floats(float* p, Floats v) { _mm512_storeu_ps(p, v); }
inline Floats all_floats(float v) { return _mm512_set1_ps(v); }
inline Ints all_ints(std::int32_t v) { return _mm512_set1_epi32(v); }
inline Ints bits_of(Floats v) { return _mm512_castps_si512(v); }
inline Floats as_floats(Ints v) { return _mm512_castsi512_ps(v); }
inline Ints load_ints(const std::uint32_t* p) { return _mm512_loadu_si512(p); }
inline void store_ints(std::uint32_t* p, Ints v) { _mm512_storeu_si512(p, v); }
inline Ints load_bytes(const std::uint8_t* p) { return _mm512_loadu_si512(p); }
inline void store_bytes(std::uint8_t* p, Ints v) { _mm512_storeu_si512(p, v); }
inline Ints sixteen_bytes(const std::uint8_t* p) { return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline Ints shuffle_bytes(Ints table, Ints index) { return _mm512_shuffle_epi8(table, index); }
inline Ints all_bytes(std::uint8_t v) { return _mm512_set1_epi8(static_cast<char>(v)); }
inline Ints add_bytes(Ints a, Ints b) { return _mm512_add_epi8(a, b); }
inline Ints count_reached_bytes(Ints counts, Ints v, Ints limit) {
  return _mm512_mask_add_epi8(counts, _mm512_cmpge_epu8_mask(v, limit), counts, _mm512_set1_epi8(1));
}
// 16-bit lanes, twice as many as 32-bit ones.
inline Ints widen_bytes(const std::uint8_t* p) { return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
inline Ints load_words(const std::uint16_t* p) { return _mm512_loadu_si512(p); }
inline void store_words(std::uint16_t* p, Ints v) { _mm512_storeu_si512(p, v); }
inline Ints all_words(std::uint16_t v) { return _mm512_set1_epi16(static_cast<short>(v)); }
inline Ints decayed_words(Ints mean, Ints m) {  // mean - mean / 8 + 16 m
  return _mm512_add_epi16(_mm512_sub_epi16(mean, _mm512_srli_epi16(mean, 3)), _mm512_slli_epi16(m, 4));
}
inline Ints eighth_words(Ints v) { return _mm512_srli_epi16(v, 3); }
inline Ints at_most_one(Ints v) { return _mm512_min_epu16(v, _mm512_set1_epi16(1)); }
inline Ints narrow_words(Ints low, Ints high) {  // to bytes
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(low)), _mm512_cvtepi16_epi8(high), 1);
}
inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
inline Ints sub(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
inline Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Ints multiply(Ints a, Ints b) { return _mm512_mullo_epi32(a, b); }  // the low 32 bits
inline Floats div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
inline Floats min(Floats a, Floats b) { return _mm512_min_ps(a, b); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Ints round_to_ints(Floats v) { return _mm512_cvtps_epi32(v); }
inline Ints truncate_to_ints(Floats v) { return _mm512_cvttps_epi32(v); }
inline Floats to_floats(Ints v) { return _mm512_cvtepi32_ps(v); }
inline Floats unsigned_to_floats(Ints v) { return _mm512_cvtepu32_ps(v); }  // rounded once
inline Floats estimated_inverse(Floats v) { return _mm512_rcp14_ps(v); }    // 12 bits or more
inline Ints or_(Ints a, Ints b) { return _mm512_or_si512(a, b); }
inline Ints and_(Ints a, Ints b) { return _mm512_and_si512(a, b); }
inline Ints xor_(Ints a, Ints b) { return _mm512_xor_si512(a, b); }
inline Ints min(Ints a, Ints b) { return _mm512_min_epi32(a, b); }
inline Ints max(Ints a, Ints b) { return _mm512_max_epi32(a, b); }
inline Ints shift_left(Ints v, unsigned bits) { return _mm512_sll_epi32(v, _mm_cvtsi32_si128(static_cast<int>(bits))); }
inline Ints shift_right(Ints v, unsigned bits) { return _mm512_srl_epi32(v, _mm_cvtsi32_si128(static_cast<int>(bits))); }
inline Ints sign_of(Ints v) { return _mm512_srai_epi32(v, 31); }
inline Mask at_least(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
inline Mask less(Ints a, Ints b) { return _mm512_cmplt_epi32_mask(a, b); }
inline Mask not_less(Ints a, Ints b) { return _mm512_cmpge_epi32_mask(a, b); }
inline Mask equal(Ints a, Ints b) { return _mm512_cmpeq_epi32_mask(a, b); }
inline Mask both(Mask a, Mask b) { return a & b; }
inline Ints select(Mask m, Ints yes, Ints no) { return _mm512_mask_blend_epi32(m, no, yes); }
inline Ints keep_if(Mask m, Ints v) { return _mm512_maskz_mov_epi32(m, v); }  // 0 elsewhere
inline Ints count_if(Ints counts, Mask m) { return _mm512_mask_add_epi32(counts, m, counts, _mm512_set1_epi32(1)); }
inline unsigned mask_bits(Mask m) { return m; }
inline Floats gather(const float* table, Ints index) { return _mm512_i32gather_ps(index, table, 4); }
// table[index] by scalar loads: 0.25 ns a lane on Zen 5 where tables are in the first cache, a gather of the hardware's 0.36.
inline __m128i pick(const std::uint32_t* table, __m128i index) {
  const auto two = [table](std::uint64_t at) {
    const __m128i first = _mm_cvtsi32_si128(static_cast<int>(table[static_cast<std::uint32_t>(at)]));
    return _mm_insert_epi32(first, static_cast<int>(table[at >> 32]), 1);
  };
  return _mm_unpacklo_epi64(two(static_cast<std::uint64_t>(_mm_cvtsi128_si64(index))),
                            two(static_cast<std::uint64_t>(_mm_extract_epi64(index, 1))));
}
inline __m256i pick(const std::uint32_t* table, __m256i index) {
  const __m128i low = pick(table, _mm256_castsi256_si128(index));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), pick(table, _mm256_extracti128_si256(index, 1)), 1);
}
inline Ints pick(const std::uint32_t* table, Ints index) {
  const __m256i low = pick(table, _mm512_castsi512_si256(index));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), pick(table, _mm512_extracti64x4_epi64(index, 1)), 1);
}
inline std::uint64_t sum(Ints v) {
  std::array<std::uint32_t, kLanes> lanes;
  std::memcpy(lanes.data(), &v, sizeof(v));
  std::uint64_t total = 0;
  for (const std::uint32_t lane : lanes) total += lane;
  return total;
}

// Writes the lanes whose bit is set, packed together; all 16 slots at p may be overwritten. Compressing into a register and
// storing it whole avoids the masked store, which takes over a hundred cycles on Zen 4.
inline std::size_t compress(Ints v, unsigned bits, Key* p) {
  _mm512_storeu_si512(p, _mm512_maskz_compress_epi32(static_cast<Mask>(bits), v));
  return static_cast<std::size_t>(__builtin_popcount(bits));
}

// Writes the low words of the lanes whose bit is set so that they end at p; up to 32 bytes before p may be overwritten. Returns
// where they begin.
inline std::byte* store_words_before(std::byte* p, Ints v, unsigned bits) {
  const auto count = static_cast<unsigned>(__builtin_popcount(bits));
  const __m512i packed = _mm512_maskz_compress_epi32(static_cast<Mask>(bits), v);
  const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i last = _mm512_add_epi32(lanes, _mm512_set1_epi32(static_cast<int>(count)));  // modulo 16: the last lanes get the words
  const __m256i words = _mm512_cvtepi32_epi16(_mm512_permutexvar_epi32(last, packed));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p - 32), words);
  return p - 2 * static_cast<std::ptrdiff_t>(count);
}
// Consecutive words at p to the lanes whose bit is set; 32 bytes are read. The other lanes mean nothing.
inline Ints spread_words(const std::byte* p, unsigned bits) {
  const __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_maskz_expand_epi32(static_cast<Mask>(bits), words);
}

// 32-bit lanes that hold small numbers, to bytes or 16-bit words and back.
inline void store_codes(std::uint8_t* p, Ints v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v)); }
inline void store_codes(std::uint16_t* p, Ints v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(v)); }
inline Ints load_codes(const std::uint8_t* p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline Ints load_codes(const std::uint16_t* p) { return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }

inline void store_halves(std::byte* p, Floats v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
inline Floats load_halves(const std::byte* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }

// Up to 16 floats in a register, looked up by lane.
class SmallTable {
 public:
  static constexpr std::size_t kMaxSize = 16;
  explicit SmallTable(std::span<const float> table) {
    std::array<float, kMaxSize> padded{};
    std::copy_n(table.begin(), table.size(), padded.begin());
    values_ = _mm512_loadu_ps(padded.data());
  }
  Floats operator[](Ints index) const { return _mm512_permutexvar_ps(index, values_); }

 private:
  __m512 values_;
};

#include "epipe/codec/kernels/simd.inc.h"

}  // namespace
}  // namespace epipe::kernels

EPIPE_END_TARGET

namespace epipe::kernels {

const Kernels* avx512() {
  static const bool supported = cpu_level_limit() >= CpuLevel::kAvx512 && avx2() != nullptr && __builtin_cpu_supports("avx512f") &&
                                __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                                __builtin_cpu_supports("avx512vl");
  static constexpr Kernels kTable = simd_table("avx512");
  return supported ? &kTable : nullptr;
}

}  // namespace epipe::kernels

#else

#include "epipe/codec/kernels/kernels.h"
const epipe::kernels::Kernels* epipe::kernels::avx512() { return nullptr; }

#endif
