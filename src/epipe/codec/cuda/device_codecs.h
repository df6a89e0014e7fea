#pragma once

#include <functional>
#include <vector>

#include "epipe/codec/cuda/device_codec.h"
#include "epipe/codec/factories.h"
#include "epipe/codec/thin_product.h"

// One factory per device codec; the codecs' own device_codec() call them. All give null in a build without CUDA.
namespace epipe::codec {

enum class PlainFormat : std::uint8_t { kFp32, kFp16, kBf16 };
enum class RunBorders : std::uint8_t { kUniform, kSort, kFast };

// What kmeans does on the host, wherever the tensor is.
struct KMeansFit {
  std::size_t sample;  // values at most; the range's ends join them when there are more values
  std::function<std::vector<float>(std::vector<kernels::Key> sample, std::size_t values)> centroids;
  std::function<std::vector<float>(const std::vector<float>& centroids)> thresholds;
};

// The sizes in a payload of topk.
struct TopKShape {
  std::function<std::size_t(std::size_t values)> kept_count;
  std::function<unsigned(std::size_t values)> position_bits;
  std::function<std::size_t(bool bitmap, std::size_t values, std::size_t count)> position_bytes;
  std::function<PayloadBounds(std::size_t count)> inner_bounds;
};

// How lowrank and power cut a tensor into factors.
struct FactorForm {
  std::function<std::optional<ThinShape>(const TensorSpec&)> product;  // nullopt where the first inner codec takes the tensor as it is
  std::function<std::vector<TensorSpec>(const TensorSpec&)> shapes;    // of the factors
  std::function<PayloadBounds(std::size_t part, const TensorSpec&)> bounds;
};

std::unique_ptr<DeviceCodec> make_plain_device_codec(PlainFormat format);
std::unique_ptr<DeviceCodec> make_run_device_codec(RunBorders borders, unsigned level_bits, unsigned split_bits);
std::unique_ptr<DeviceCodec> make_kmeans_device_codec(unsigned bits, KMeansFit fit);
std::unique_ptr<DeviceCodec> make_topk_device_codec(TopKShape shape, std::unique_ptr<DeviceCodec> inner);  // null when the inner one is
std::unique_ptr<DeviceCodec> make_lowrank_device_codec(FactorForm form,
                                                       std::vector<std::unique_ptr<DeviceCodec>> inner);  // null when one of them is
std::unique_ptr<DeviceCodec> make_power_device_codec(FactorForm form, std::vector<std::unique_ptr<DeviceCodec>> inner);
std::unique_ptr<DeviceCodec> make_entropy_device_codec(EntropyKind kind, EntropyTarget target);

}  // namespace epipe::codec
