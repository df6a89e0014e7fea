#pragma once

#include <functional>
#include <vector>

#include "epipe/codec/cuda/twin.h"
#include "epipe/codec/factories.h"
#include "epipe/codec/thin_product.h"

// One factory per twin; the codecs' own twin() call them. All give null in a build without CUDA.
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

std::unique_ptr<Twin> make_plain_twin(PlainFormat format);
std::unique_ptr<Twin> make_run_twin(RunBorders borders, unsigned level_bits, unsigned split_bits);
std::unique_ptr<Twin> make_kmeans_twin(unsigned bits, KMeansFit fit);
std::unique_ptr<Twin> make_topk_twin(TopKShape shape, std::unique_ptr<Twin> inner);                  // null when the inner one is
std::unique_ptr<Twin> make_lowrank_twin(FactorForm form, std::vector<std::unique_ptr<Twin>> inner);  // null when one of them is
std::unique_ptr<Twin> make_power_twin(FactorForm form, std::vector<std::unique_ptr<Twin>> inner);
std::unique_ptr<Twin> make_entropy_twin(EntropyKind kind, EntropyTarget target);

}  // namespace epipe::codec
