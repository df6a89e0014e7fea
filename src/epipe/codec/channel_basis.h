#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"
#include "epipe/wire/tensor_spec.h"

// The basis of a KLT (Karhunen-Loeve transform, PCA) of channels: combinations that hardly depend on each other, for the entropy codecs to
// code instead of the channels of [N, C, H, W].
namespace epipe::codec {

// x[c] = sum over k of entry(c, k) / 128 * z[k], where z are the combinations.
class ChannelBasis {
 public:
  static constexpr std::size_t kMostChannels = 64;

  // Whether the channels of such a tensor can have a KLT: four dims, 2 to kMostChannels channels.
  static bool fits(const wire::TensorSpec& tensor);

  // The principal axes of a symmetric matrix of second moments, [C, C], the strongest first.
  static ChannelBasis of_moments(std::vector<double> moments, std::size_t channels);
  ChannelBasis(std::vector<std::int8_t> entries, std::size_t channels) : entries_(std::move(entries)), channels_(channels) {}

  std::size_t channels() const { return channels_; }
  std::span<const std::int8_t> entries() const { return entries_; }  // [C, C]

  std::vector<float> to_channels() const;    // [C, C]: from combinations k to channels c
  std::vector<float> from_channels() const;  // its inverse, of a basis by of_moments()
  // By how much the shares of errors and of energies in channels and in combinations can differ: 1 for axes at right angles.
  double skew() const;

  bool operator==(const ChannelBasis&) const = default;

 private:
  std::vector<std::int8_t> entries_;
  std::size_t channels_;
};

// Second moments of differences between two places half a map apart, and with less weight of the values themselves, at places spread
// evenly over a tensor on any device.
std::vector<double> channel_moments(const torch::Tensor& x);

// As it travels in front of a coded payload, whose kind it gives. docs/wire_format.md is normative.
std::size_t basis_bytes(std::size_t channels);
void write_basis(const ChannelBasis& basis, Bytes& out);
// `first` may be longer.
Result<ChannelBasis> read_basis(const wire::TensorSpec& tensor, ByteView first);

}  // namespace epipe::codec
