#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"
#include "epipe/base/thread_pool.h"
#include "epipe/wire/tensor_spec.h"

// The means over samples and places of the channels of [N, C, H, W]. Biases and normalization see little else of a gradient, and a
// quantizer does not see them: the values cancel to about a hundredth of what random signs would leave. So they travel beside the coded
// values.
namespace epipe::codec {

// Sums over one map, each in a fixed order: 32 interleaved sums in float32, added up in float64 from the first to the last.
inline constexpr std::size_t kMapSums = 32;

// Whether a shape has channels whose means can travel: four dims, maps of 64 values or more.
bool has_channel_means(const wire::TensorSpec& tensor);

// Of all maps, [N, C].
std::vector<double> map_sums(const wire::TensorSpec& tensor, std::span<const float> x, ThreadPool* pool);
// The means that sums of maps give, [C].
std::vector<float> means_of(const wire::TensorSpec& tensor, std::span<const double> sums);
// What to add to every value of a channel so that its mean becomes the wanted one, [C]: 0 where that is not finite.
std::vector<float> shifts_to(const wire::TensorSpec& tensor, std::span<const float> wanted, std::span<const double> sums);
void add_to_channels(const wire::TensorSpec& tensor, std::span<const float> shifts, ThreadPool* pool, std::span<float> x);

// As they travel in front of another payload, whose kind they give. docs/wire_format.md is normative.
std::size_t means_bytes(std::size_t channels);
void write_means(std::span<const float> means, Bytes& out);
// `first` may be longer.
Result<std::vector<float>> read_means(const wire::TensorSpec& tensor, ByteView first);

}  // namespace epipe::codec
