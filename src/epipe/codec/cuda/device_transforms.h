#pragma once

#include <torch/types.h>

#include <memory>
#include <mutex>
#include <span>

#include "epipe/codec/reflections.h"

// What klt.h, channel_means.h, reflections.h and spectra.h do, for tensors on a device and to the same bits. Tensors are contiguous
// float32.
namespace epipe::codec {

// Channels of [N, C, H, W] times a matrix [C, C]; y may be x.
void multiply_channels_on_device(const torch::Tensor& x, std::span<const float> matrix, torch::Tensor& y);
// Shifts the channels of [N, C, H, W] so that they have these means.
void set_channel_means_on_device(torch::Tensor& x, std::span<const float> means);
// The rows on which leading_axes() looks, in host memory.
torch::Tensor sampled_rows_of(const torch::Tensor& x);
// [N, C, H, W] with small maps to [H W, N, C], and back into x.
torch::Tensor to_spectra_on_device(const torch::Tensor& x);
void from_spectra_on_device(const torch::Tensor& spectra, torch::Tensor& x);

// Reflections on a device: those of the last call stay there, so that whoever has the same ones again sends nothing. For any number of
// threads.
class DeviceReflections {
 public:
  DeviceReflections();
  ~DeviceReflections();
  // Rows of features; y may be x.
  void apply(const torch::Tensor& x, const std::shared_ptr<const Reflections>& reflections, bool backwards, torch::Tensor& y);

 private:
  struct There;
  std::mutex mutex_;  // guards there_
  std::unique_ptr<There> there_;
};

}  // namespace epipe::codec
