#include <bit>

#include "epipe/codec/kernels/kernels.h"
#include "epipe/codec/kernels/scalar.h"

namespace epipe::kernels {

RunTable::RunTable(std::span<const Run> runs, unsigned level_bits)
    : level_bits_(level_bits), split_bits_(static_cast<unsigned>(std::bit_width(runs.size()) - 1)) {
  for (const Run& run : runs) {
    mins_.push_back(run.min);
    steps_.push_back(run.step);
    divisors_.push_back(run.step == 0 ? 1.0F : run.step);
  }
}

const Kernels& scalar() {
  static constexpr Kernels kTable = {
      "scalar",
      scalar_impl::key_range,
      scalar_impl::energy,
      scalar_impl::store_fp32,
      scalar_impl::load_fp32,
      scalar_impl::store_fp16,
      scalar_impl::load_fp16,
      scalar_impl::store_bf16,
      scalar_impl::load_bf16,
      scalar_impl::encode_runs,
      scalar_impl::decode_runs,
      scalar_impl::encode_search,
      scalar_impl::decode_table,
      scalar_impl::scan_brackets,
      scalar_impl::transform_blocks,
      scalar_impl::multiply_channels,
      scalar_impl::reflect,
      scalar_impl::quantize,
      scalar_impl::look_up,
      scalar_impl::magnitudes_of,
      scalar_impl::parent_levels,
      scalar_impl::running_levels,
      scalar_impl::neighbour_levels,
      scalar_impl::map_bytes,
      scalar_impl::encode_tokens,
      scalar_impl::decode_tokens,
      scalar_impl::decode_two,
      scalar_impl::write_raw,
      scalar_impl::read_raw,
  };
  return kTable;
}

const Kernels& best() {
  if (const Kernels* wide = avx512()) return *wide;
  if (const Kernels* wide = avx2()) return *wide;
  return scalar();
}

}  // namespace epipe::kernels
