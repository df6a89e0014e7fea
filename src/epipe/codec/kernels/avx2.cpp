// The SIMD kernels for AVX2: 8 lanes, masks are vectors.
#if defined(__x86_64__)

#include <cpuid.h>
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

EPIPE_BEGIN_TARGET("avx2,fma,f16c,bmi,bmi2,popcnt")

namespace epipe::kernels {
namespace {

constexpr std::size_t kLanes = 8;
using Floats = __m256;
using Ints = __m256i;
using Mask = __m256i;
using Doubles = __m256d;

inline Doubles no_doubles() { return _mm256_setzero_pd(); }
inline Doubles load_doubles(const float* p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
inline Doubles add_squares(Doubles v, Doubles sums) { return _mm256_fmadd_pd(v, v, sums); }
inline Floats load_floats(const float* p) { return _mm256_loadu_ps(p); }
inline void store_floats(float* p, Floats v) { _mm256_storeu_ps(p, v); }
inline Floats all_floats(float v) { return _mm256_set1_ps(v); }
inline Ints all_ints(std::int32_t v) { return _mm256_set1_epi32(v); }
inline Ints bits_of(Floats v) { return _mm256_castps_si256(v); }
inline Floats as_floats(Ints v) { return _mm256_castsi256_ps(v); }
inline Ints load_ints(const std::uint32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline void store_ints(std::uint32_t* p, Ints v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
inline Ints load_bytes(const std::uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline void store_bytes(std::uint8_t* p, Ints v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
inline Ints sixteen_bytes(const std::uint8_t* p) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Ints shuffle_bytes(Ints table, Ints index) { return _mm256_shuffle_epi8(table, index); }
inline Ints all_bytes(std::uint8_t v) { return _mm256_set1_epi8(static_cast<char>(v)); }
inline Ints add_bytes(Ints a, Ints b) { return _mm256_add_epi8(a, b); }
inline Ints count_reached_bytes(Ints counts, Ints v, Ints limit) {
  return _mm256_sub_epi8(counts, _mm256_cmpeq_epi8(_mm256_max_epu8(v, limit), v));
}
// 16-bit lanes, twice as many as 32-bit ones.
inline Ints widen_bytes(const std::uint8_t* p) { return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline Ints load_words(const std::uint16_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline void store_words(std::uint16_t* p, Ints v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
inline Ints all_words(std::uint16_t v) { return _mm256_set1_epi16(static_cast<short>(v)); }
inline Ints decayed_words(Ints mean, Ints m) {  // mean - mean / 8 + 16 m
  return _mm256_add_epi16(_mm256_sub_epi16(mean, _mm256_srli_epi16(mean, 3)), _mm256_slli_epi16(m, 4));
}
inline Ints eighth_words(Ints v) { return _mm256_srli_epi16(v, 3); }
inline Ints at_most_one(Ints v) { return _mm256_min_epu16(v, _mm256_set1_epi16(1)); }
inline Ints narrow_words(Ints low, Ints high) { return _mm256_permute4x64_epi64(_mm256_packus_epi16(low, high), 0xd8); }  // to bytes
inline Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
inline Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
inline Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
inline Ints sub(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
inline Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
inline Ints multiply(Ints a, Ints b) { return _mm256_mullo_epi32(a, b); }  // the low 32 bits
inline Floats div(Floats a, Floats b) { return _mm256_div_ps(a, b); }
inline Floats min(Floats a, Floats b) { return _mm256_min_ps(a, b); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline Ints round_to_ints(Floats v) { return _mm256_cvtps_epi32(v); }
inline Ints truncate_to_ints(Floats v) { return _mm256_cvttps_epi32(v); }
inline Floats to_floats(Ints v) { return _mm256_cvtepi32_ps(v); }
inline Floats unsigned_to_floats(Ints v) {  // rounded once
  const Floats high = _mm256_cvtepi32_ps(_mm256_srli_epi32(v, 16));
  const Floats low = _mm256_cvtepi32_ps(_mm256_and_si256(v, _mm256_set1_epi32(0xffff)));
  return _mm256_fmadd_ps(high, _mm256_set1_ps(65536), low);
}
inline Floats estimated_inverse(Floats v) { return _mm256_rcp_ps(v); }  // 12 bits or more
inline Ints or_(Ints a, Ints b) { return _mm256_or_si256(a, b); }
inline Ints and_(Ints a, Ints b) { return _mm256_and_si256(a, b); }
inline Ints xor_(Ints a, Ints b) { return _mm256_xor_si256(a, b); }
inline Ints min(Ints a, Ints b) { return _mm256_min_epi32(a, b); }
inline Ints max(Ints a, Ints b) { return _mm256_max_epi32(a, b); }
inline Ints shift_left(Ints v, unsigned bits) { return _mm256_sll_epi32(v, _mm_cvtsi32_si128(static_cast<int>(bits))); }
inline Ints shift_right(Ints v, unsigned bits) { return _mm256_srl_epi32(v, _mm_cvtsi32_si128(static_cast<int>(bits))); }
inline Ints sign_of(Ints v) { return _mm256_srai_epi32(v, 31); }
inline Mask at_least(Floats a, Floats b) { return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_GE_OQ)); }
inline Mask less(Ints a, Ints b) { return _mm256_cmpgt_epi32(b, a); }
inline Mask not_less(Ints a, Ints b) { return _mm256_xor_si256(_mm256_cmpgt_epi32(b, a), _mm256_set1_epi32(-1)); }
inline Mask equal(Ints a, Ints b) { return _mm256_cmpeq_epi32(a, b); }
inline Mask both(Mask a, Mask b) { return _mm256_and_si256(a, b); }
inline Ints select(Mask m, Ints yes, Ints no) { return _mm256_blendv_epi8(no, yes, m); }
inline Ints keep_if(Mask m, Ints v) { return _mm256_and_si256(m, v); }  // 0 elsewhere
inline Ints count_if(Ints counts, Mask m) { return _mm256_sub_epi32(counts, m); }
inline unsigned mask_bits(Mask m) { return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(m))); }
inline Floats gather(const float* table, Ints index) { return _mm256_i32gather_ps(table, index, 4); }
// table[index] by scalar loads: 0.25 ns a lane on Zen 5 where tables are in the first cache, a gather of the hardware's 0.36.
inline __m128i pick(const std::uint32_t* table, __m128i index) {
  const auto two = [table](std::uint64_t at) {
    const __m128i first = _mm_cvtsi32_si128(static_cast<int>(table[static_cast<std::uint32_t>(at)]));
    return _mm_insert_epi32(first, static_cast<int>(table[at >> 32]), 1);
  };
  return _mm_unpacklo_epi64(two(static_cast<std::uint64_t>(_mm_cvtsi128_si64(index))),
                            two(static_cast<std::uint64_t>(_mm_extract_epi64(index, 1))));
}
inline Ints pick(const std::uint32_t* table, Ints index) {
  const __m128i low = pick(table, _mm256_castsi256_si128(index));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), pick(table, _mm256_extracti128_si256(index, 1)), 1);
}
inline std::uint64_t sum(Ints v) {
  std::array<std::uint32_t, kLanes> lanes;
  std::memcpy(lanes.data(), &v, sizeof(v));
  std::uint64_t total = 0;
  for (const std::uint32_t lane : lanes) total += lane;
  return total;
}

// Writes the lanes whose bit is set, packed together; all 8 slots at p may be overwritten.
inline std::size_t compress(Ints v, unsigned bits, Key* p) {
  const std::uint64_t bytes = _pdep_u64(bits, 0x0101010101010101) * 0xff;
  const std::uint64_t order = _pext_u64(0x0706050403020100, bytes);
  const __m256i index = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(order)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permutevar8x32_epi32(v, index));
  return static_cast<std::size_t>(__builtin_popcount(bits));
}

// Lane numbers of the bits that are set, packed together from lane 0 on.
inline std::uint64_t set_lanes(unsigned bits) { return _pext_u64(0x0706050403020100, _pdep_u64(bits, 0x0101010101010101) * 0xff); }

// Writes the low words of the lanes whose bit is set so that they end at p; up to 16 bytes before p may be overwritten. Returns
// where they begin.
inline std::byte* store_words_before(std::byte* p, Ints v, unsigned bits) {
  const auto count = static_cast<unsigned>(__builtin_popcount(bits));
  if (count == 0) return p;
  const std::uint64_t order = set_lanes(bits) << (8 * (kLanes - count));
  const __m256i index = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(order)));
  const __m256i words = _mm256_and_si256(_mm256_permutevar8x32_epi32(v, index), _mm256_set1_epi32(0xffff));
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p - 16), _mm256_castsi256_si128(packed));
  return p - 2 * static_cast<std::ptrdiff_t>(count);
}
// Consecutive words at p to the lanes whose bit is set; 16 bytes are read. The other lanes mean nothing.
inline Ints spread_words(const std::byte* p, unsigned bits) {
  const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const std::uint64_t spread = _pdep_u64(0x0706050403020100, _pdep_u64(bits, 0x0101010101010101) * 0xff);
  return _mm256_permutevar8x32_epi32(words, _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(spread))));
}

// 32-bit lanes that hold small numbers, to bytes or 16-bit words and back.
inline void store_codes(std::uint8_t* p, Ints v) {
  const __m256i spread = _mm256_shuffle_epi8(v, _mm256_set1_epi32(0x0c080400));
  const auto low = static_cast<std::uint32_t>(_mm256_extract_epi32(spread, 0));
  const auto high = static_cast<std::uint32_t>(_mm256_extract_epi32(spread, 4));
  std::memcpy(p, &low, 4);
  std::memcpy(p + 4, &high, 4);
}
inline void store_codes(std::uint16_t* p, Ints v) {
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(v, v), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
}
inline Ints load_codes(const std::uint8_t* p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))); }
inline Ints load_codes(const std::uint16_t* p) { return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }

inline void store_halves(std::byte* p, Floats v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
inline Floats load_halves(const std::byte* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }

// Up to 8 floats in a register, looked up by lane.
class SmallTable {
 public:
  static constexpr std::size_t kMaxSize = 8;
  explicit SmallTable(std::span<const float> table) {
    std::array<float, kMaxSize> padded{};
    std::copy_n(table.begin(), table.size(), padded.begin());
    values_ = _mm256_loadu_ps(padded.data());
  }
  Floats operator[](Ints index) const { return _mm256_permutevar8x32_ps(values_, index); }

 private:
  __m256 values_;
};

#include "epipe/codec/kernels/simd.inc.h"

}  // namespace
}  // namespace epipe::kernels

EPIPE_END_TARGET

namespace epipe::kernels {
namespace {

// The builtin below knows no F16C in clang 14. Its registers are those of AVX, which the builtin finds only where the system saves them.
bool cpu_has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// Every feature of the target above.
bool cpu_has_target() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c() && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
}

}  // namespace

const Kernels* avx2() {
  static const bool supported = cpu_level_limit() >= CpuLevel::kAvx2 && cpu_has_target();
  static constexpr Kernels kTable = simd_table("avx2");
  return supported ? &kTable : nullptr;
}

}  // namespace epipe::kernels

#else

#include "epipe/codec/kernels/kernels.h"
const epipe::kernels::Kernels* epipe::kernels::avx2() { return nullptr; }

#endif
