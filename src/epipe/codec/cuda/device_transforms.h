#pragma once

#include <torch/types.h>

#include <span>

#include "epipe/codec/reflections.h"

// What klt.h, channel_means.h, reflections.h and spectra.h do, for tensors on a device and to the same bits. Tensors are contiguous
// float32.
namespace epipe::codec {

// Channels of [N, C, H, W] times a matrix [C, C]; y may be x.
void multiply_channels_on_device(const torch::Tensor& x, std::span<const float> matrix, torch::Tensor& y);
// Shifts the channels of [N, C, H, W] so that they have these means.
void set_channel_means_on_device(torch::Tensor& x, std::span<const float> means);
// Rows of features; y may be x.
void reflect_on_device(const torch::Tensor& x, const Reflections& reflections, bool backwards, torch::Tensor& y);
// The rows on which leading_axes() looks, in host memory.
torch::Tensor sampled_rows_of(const torch::Tensor& x);
// [N, C, H, W] with small maps to [H W, N, C], and back into x.
torch::Tensor to_spectra_on_device(const torch::Tensor& x);
void from_spectra_on_device(const torch::Tensor& spectra, torch::Tensor& x);

}  // namespace epipe::codec
