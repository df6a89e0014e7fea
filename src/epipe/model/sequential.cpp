#include "epipe/model/sequential.h"

#include <fmt/format.h>
#include <torch/nn/functional/instancenorm.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/instancenorm.h>

#include <map>
#include <optional>
#include <stdexcept>

#include "epipe/layer/batch_norm.h"
#include "epipe/layer/random.h"

namespace epipe::model {
namespace {

using layer::ForwardContext;
using layer::Tensors;
namespace nn = torch::nn;

template <typename... Kinds>
bool is_any_of(const nn::Module& module) {
  return (... || (dynamic_cast<const Kinds*>(&module) != nullptr));
}

bool is_batch_norm(const nn::Module& module) { return is_any_of<nn::BatchNorm1dImpl, nn::BatchNorm2dImpl, nn::BatchNorm3dImpl>(module); }
bool is_dropout(const nn::Module& module) { return is_any_of<nn::DropoutImpl, nn::Dropout2dImpl, nn::Dropout3dImpl>(module); }

template <typename Kind>
bool tracks_statistics(const nn::Module& module) {
  const auto* const norm = dynamic_cast<const Kind*>(&module);
  return norm != nullptr && norm->options.track_running_stats();
}

// Why results with this module would depend on how batches are split; empty: they would not.
std::string reason_against(const nn::Module& module) {
  if (is_any_of<nn::AlphaDropoutImpl, nn::FeatureAlphaDropoutImpl, nn::RReLUImpl>(module)) {
    return "its random numbers cannot be drawn by sample; use Dropout, or another activation";
  }
  if (tracks_statistics<nn::InstanceNorm1dImpl>(module) || tracks_statistics<nn::InstanceNorm2dImpl>(module) ||
      tracks_statistics<nn::InstanceNorm3dImpl>(module)) {
    return "its running statistics would move with every micro-batch; use track_running_stats(false)";
  }
  return "";
}

template <typename Kind>
bool has_inplace(const nn::Module& module) {
  const auto* const found = dynamic_cast<const Kind*>(&module);
  return found != nullptr && found->options.inplace();
}

template <typename... Kinds>
bool any_inplace(const nn::Module& module) {
  return (... || has_inplace<Kinds>(module));
}

bool works_in_place(const nn::Module& module) {
  return any_inplace<nn::ReLUImpl, nn::ReLU6Impl, nn::LeakyReLUImpl, nn::ELUImpl, nn::SELUImpl, nn::CELUImpl, nn::HardtanhImpl,
                     nn::ThresholdImpl>(module);
}

[[noreturn]] void refuse(const std::string& path, const nn::Module& module, const std::string& reason) {
  throw std::invalid_argument(fmt::format("layer {} ({}): {}", path, module.name(), reason));
}

template <typename Kind>
std::shared_ptr<layer::DeferredBatchNorm> deferred(const nn::Module& module, const std::string& path) {
  const auto* const norm = dynamic_cast<const Kind*>(&module);
  if (norm == nullptr) return nullptr;
  const auto& options = norm->options;
  if (!options.track_running_stats() || !options.momentum()) {
    refuse(path, module, "expected a BatchNorm with running statistics and a momentum, which epipe updates once per batch");
  }
  return std::make_shared<layer::DeferredBatchNorm>(
      layer::DeferredBatchNorm::Shared{norm->weight, norm->bias, norm->running_mean, norm->running_var, norm->num_batches_tracked},
      options.eps(), *options.momentum());
}

std::shared_ptr<layer::DeferredBatchNorm> deferred_norm(const nn::Module& module, const std::string& path) {
  if (auto norm = deferred<nn::BatchNorm1dImpl>(module, path)) return norm;
  if (auto norm = deferred<nn::BatchNorm2dImpl>(module, path)) return norm;
  return deferred<nn::BatchNorm3dImpl>(module, path);
}

double dropout_of(const nn::Module& module) {
  if (const auto* const plain = dynamic_cast<const nn::DropoutImpl*>(&module)) return plain->options.p();
  if (const auto* const maps = dynamic_cast<const nn::Dropout2dImpl*>(&module)) return maps->options.p();
  return dynamic_cast<const nn::Dropout3dImpl&>(module).options.p();
}

// Dropout2d and 3d drop whole channels: one draw per element of [B, C].
torch::Tensor drop_channels(const torch::Tensor& x, double p, const ForwardContext& at, const std::string& name) {
  if (!at.training || p == 0) return x;
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  for (std::size_t i = 0; i < 2 && i < shape.size(); ++i) shape[i] = x.size(static_cast<std::int64_t>(i));
  if (x.is_cuda()) layer::refuse_capture(at, name, "draws its numbers on the host");
  return x * layer::dropout_mask(shape, p, at, name).to(x.options());
}

// Registers the parameters and buffers of a module tree, the same tensors, under the same names.
void mirror(const nn::Module& from, nn::Module& to) {
  for (const auto& item : from.named_parameters(/*recurse=*/false)) {
    to.register_parameter(item.key(), item.value(), item.value().requires_grad());
  }
  for (const auto& item : from.named_buffers(/*recurse=*/false)) to.register_buffer(item.key(), item.value());
  for (const auto& item : from.named_children()) {
    mirror(*item.value(), *to.register_module(item.key(), std::make_shared<nn::Module>()));
  }
}

// One child of a Sequential. A nested Sequential that passes through is walked, so that its BatchNorms and Dropouts are replaced as well.
class ChildLayer final : public layer::Layer {
 public:
  ChildLayer(const std::string& name, const nn::AnyModule& child, const PassesThrough& passes_through) : Layer(name) {
    add(name, child, passes_through);
    mirror(*child.ptr(), *this);
  }

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    if (in.size() != 1) throw std::runtime_error(fmt::format("layer {} takes one tensor, got {}", name(), in.size()));
    torch::Tensor x = begins_in_place_ ? in[0].clone() : in[0];
    for (const Step& step : steps_) x = step(x, at);
    return {x};
  }
  // Each weight counts once per output position: exact for a linear layer or a convolution, an estimate for several in one child.
  double flops(const Tensors&, const Tensors& out) const override {
    double weights = 0;
    for (const auto& parameter : parameters()) weights += static_cast<double>(parameter.numel());
    const auto& y = out[0];
    const auto places = y.dim() >= 3 ? y.numel() / y.size(1) : y.numel() / std::max<std::int64_t>(1, y.size(-1));
    return 2 * weights * static_cast<double>(places) + static_cast<double>(y.numel());
  }
  void initialize(std::uint64_t) override {}  // the Sequential is already initialized

  void commit_batch() override {
    std::vector<layer::DeferredBatchNorm*> norms;
    for (const auto& norm : norms_) norms.push_back(norm.get());
    layer::DeferredBatchNorm::commit_together(norms);
  }
  void discard_batch() override {
    for (const auto& norm : norms_) norm->discard_batch();
  }
  torch::Tensor batch_totals() const override {
    std::vector<torch::Tensor> parts = {torch::empty({0}, torch::kFloat64)};
    for (const auto& norm : norms_) parts.push_back(norm->batch_totals());
    return torch::cat(parts);
  }
  void set_batch_totals(const torch::Tensor& totals) override {
    std::int64_t begin = 0;
    for (const auto& norm : norms_) {
      const std::int64_t size = norm->batch_totals().numel();
      norm->set_batch_totals(totals.narrow(0, begin, size));
      begin += size;
    }
  }

 private:
  using Step = std::function<torch::Tensor(const torch::Tensor& x, const ForwardContext& at)>;

  void add(const std::string& path, const nn::AnyModule& any, const PassesThrough& passes_through) {
    const nn::Module& module = *any.ptr();
    if (steps_.empty()) begins_in_place_ = works_in_place(module);
    const auto* const nested = dynamic_cast<const nn::SequentialImpl*>(&module);
    if (nested != nullptr && passes_through(*nested)) return add_children(path, *nested, passes_through);
    if (const std::string reason = reason_against(module); !reason.empty()) refuse(path, module, reason);
    if (is_batch_norm(module)) return add_norm(path, module);
    if (is_dropout(module)) return add_dropout(path, module);
    check_insides(path, module);
    add_module(path, any);
  }

  void add_children(const std::string& path, const nn::SequentialImpl& sequential, const PassesThrough& passes_through) {
    const auto names = sequential.named_children().keys();
    std::size_t i = 0;
    for (const nn::AnyModule& child : sequential) add(fmt::format("{}.{}", path, names.at(i++)), child, passes_through);
  }

  void add_norm(const std::string& path, const nn::Module& module) {
    norms_.push_back(deferred_norm(module, path));
    steps_.emplace_back([norm = norms_.back()](const torch::Tensor& x, const ForwardContext& at) { return norm->forward(x, at); });
  }

  void add_dropout(const std::string& path, const nn::Module& module) {
    const double p = dropout_of(module);
    const bool channels = dynamic_cast<const nn::DropoutImpl*>(&module) == nullptr;
    steps_.emplace_back([=](const torch::Tensor& x, const ForwardContext& at) {
      return channels ? drop_channels(x, p, at, path) : layer::dropout(x, p, at, path);
    });
  }

  void add_module(const std::string& path, nn::AnyModule any) {
    const bool foreign = any.ptr()->name().rfind("torch::nn::", 0) != 0;
    steps_.emplace_back([path, any, foreign](const torch::Tensor& x, const ForwardContext& at) mutable {
      if (foreign) layer::refuse_capture(at, path, "has a forward of its own");
      if (any.ptr()->is_training() != at.training) any.ptr()->train(at.training);
      auto y = any.any_forward(x);
      if (auto* const tensor = y.try_get<torch::Tensor>()) return *tensor;
      throw std::runtime_error(fmt::format("expected layer {} ({}) to return one tensor", path, any.ptr()->name()));
    });
  }

  // Modules called by a module with its own forward cannot be replaced.
  static void check_insides(const std::string& path, const nn::Module& module) {
    for (const auto& item : module.named_modules(path, /*include_self=*/false)) {
      const nn::Module& inside = *item.value();
      const bool replaced = is_batch_norm(inside) || is_dropout(inside);
      const std::string reason = replaced ? "a BatchNorm or Dropout that another module calls cannot be replaced" : reason_against(inside);
      if (reason.empty()) continue;
      refuse(path, module,
             fmt::format("it holds {} ({}): {}; make it a child of the Sequential, or of an epipe::Nested in it", item.key(), inside.name(),
                         reason));
    }
  }

  std::vector<Step> steps_;
  std::vector<std::shared_ptr<layer::DeferredBatchNorm>> norms_;  // shared with their steps
  bool begins_in_place_ = false;                                  // and would overwrite the previous layer's output
};

// Stages on different workers would each train their own copy.
void check_sharing(const nn::SequentialImpl& net) {
  std::map<const void*, std::string> owners;
  for (const auto& child : net.named_children()) {
    for (const auto& parameter : child.value()->parameters()) {
      const auto [found, fresh] = owners.emplace(parameter.unsafeGetTensorImpl(), child.key());
      if (fresh || found->second == child.key()) continue;
      throw std::invalid_argument(fmt::format("layers {} and {} share weights: expected each in one layer", found->second, child.key()));
    }
  }
}

}  // namespace

Architecture layers_of(const torch::nn::Sequential& net, const PassesThrough& passes_through) {
  if (net.is_empty() || net->is_empty()) throw std::invalid_argument("expected a Sequential with at least one module, got an empty one");
  check_sharing(*net);
  Architecture architecture;
  const auto names = net->named_children().keys();
  std::size_t i = 0;
  for (const nn::AnyModule& child : *net) {
    const auto layer = std::make_shared<ChildLayer>(names.at(i++), child, passes_through);
    architecture.layers.push_back({layer->name(), [layer] { return layer; }});
  }
  return architecture;
}

}  // namespace epipe::model
