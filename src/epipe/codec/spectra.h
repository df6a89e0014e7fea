#pragma once

#include <cstddef>
#include <span>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"
#include "epipe/base/thread_pool.h"
#include "epipe/codec/kernels/kernels.h"
#include "epipe/codec/planes.h"
#include "epipe/wire/tensor_spec.h"

// Small maps [N, C, H, W] of many channels as their DCT, [H W, N, C]: frequency after frequency, a row of channels per sample. So channels
// become features, which may have a KLT by reflections, and a column resembles itself from row to row.
//
//   [N, C, H, W]   DCT of each map   [H W, N, C]   reflections (reflections.h)   rows with running means per column
namespace epipe::codec {

// Maps of 2 to 63 values, at most 8 x 8, with more channels than a basis of channels may have.
bool has_spectra(const wire::TensorSpec& tensor);
wire::TensorSpec spectra_of(const wire::TensorSpec& tensor);
// A map is one block, and plane k of all blocks is frequency k of all samples and channels.
Planes spectra_planes(const wire::TensorSpec& tensor);

void to_spectra(const wire::TensorSpec& tensor, std::span<const float> x, const kernels::Kernels& kernels, ThreadPool* pool,
                std::span<float> spectra);
void from_spectra(const wire::TensorSpec& tensor, std::span<const float> spectra, const kernels::Kernels& kernels, ThreadPool* pool,
                  std::span<float> x);

// What stands in front of reflections of spectra. docs/wire_format.md is normative.
inline constexpr std::size_t kSpectraHead = 4;
void write_spectra_head(Bytes& out);
// `first` may be longer.
Result<void> check_spectra_head(const wire::TensorSpec& tensor, ByteView first);

}  // namespace epipe::codec
