#include "epipe/layer/cuda/dropout.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/custom_function.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "epipe/layer/cuda/drop.h"

namespace epipe::layer::cuda {
namespace {

// How a kernel sees a type, and a number of that type.
struct Typed {
  Element element;
  float kept;
};
Typed typed(torch::ScalarType type, float kept) {
  switch (type) {
    case torch::kFloat32: return {Element::kFloat, kept};
    case torch::kFloat16: return {Element::kHalf, static_cast<c10::Half>(kept)};
    case torch::kBFloat16: return {Element::kBFloat16, static_cast<c10::BFloat16>(kept)};
    default: throw std::invalid_argument(std::string("dropout expects float32, float16 or bfloat16, got ") + c10::toString(type));
  }
}

torch::Tensor dropped(const torch::Tensor& x, std::span<const std::uint64_t> keys, float p, float kept) {
  const c10::cuda::CUDAGuard device(x.device());
  const auto from = x.contiguous();
  auto to = torch::empty_like(from);
  const auto values = static_cast<std::size_t>(x.numel()) / std::max<std::size_t>(1, keys.size());
  const Typed as = typed(x.scalar_type(), kept);
  drop(from.data_ptr(), to.data_ptr(), as.element, keys, values, p, as.kept, c10::cuda::getCurrentCUDAStream(x.device().index()).stream());
  return to;
}

// The backward draws the same numbers again.
struct Dropout : torch::autograd::Function<Dropout> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x, const std::vector<std::int64_t>& keys,
                               double p, double kept) {
    context->saved_data["keys"] = keys;
    context->saved_data["p"] = p;
    context->saved_data["kept"] = kept;
    return apply_to(x, keys, p, kept);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto& data = context->saved_data;
    return {apply_to(gradients[0], data.at("keys").toIntVector(), data.at("p").toDouble(), data.at("kept").toDouble()), {}, {}, {}};
  }

 private:
  static torch::Tensor apply_to(const torch::Tensor& x, const std::vector<std::int64_t>& keys, double p, double kept) {
    const std::vector<std::uint64_t> unsigned_keys(keys.begin(), keys.end());
    return dropped(x, unsigned_keys, static_cast<float>(p), static_cast<float>(kept));
  }
};

}  // namespace

torch::Tensor dropout(const torch::Tensor& x, std::span<const std::uint64_t> keys, float p, float kept) {
  return Dropout::apply(x, std::vector<std::int64_t>(keys.begin(), keys.end()), static_cast<double>(p), static_cast<double>(kept));
}

}  // namespace epipe::layer::cuda
