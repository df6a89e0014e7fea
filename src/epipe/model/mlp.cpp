// mlp: four fully connected layers with ReLU between them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

#include "epipe/data/sample_values.h"
#include "epipe/layer/modules.h"
#include "epipe/model/zoo.h"

namespace epipe::model {
namespace {

constexpr std::int64_t kMlpHidden = 128;
constexpr int kLayers = 4;
constexpr std::uint64_t kMaxInputs = 1 << 24;

// [B, ...] -> [B, out]
class MlpLayer final : public layer::Layer {
 public:
  MlpLayer(const std::string& name, std::int64_t in, std::int64_t out, bool relu)
      : Layer(name), linear_(register_module("linear", std::make_shared<layer::Linear>(in, out))), relu_(relu) {}

  layer::Tensors forward(const layer::Tensors& in, const layer::ForwardContext& at) override {
    const auto y = linear_->forward(in[0].flatten(1), at);
    return {relu_ ? torch::relu(y) : y};
  }
  double flops(const layer::Tensors& in, const layer::Tensors&) const override { return linear_->flops(in[0].size(0)); }

 private:
  std::shared_ptr<layer::Linear> linear_;  // shared with the module tree, which owns it
  bool relu_;
};

}  // namespace

Architecture make_mlp(const data::DataSpec& data, const std::string&) {
  if (data.kind != data::DataSpec::Kind::kImages) throw std::invalid_argument("mlp takes images or vectors, not text; use transformer");
  const auto values = data::sample_values(data.shape);
  if (!values || *values > kMaxInputs) {
    throw std::invalid_argument(
        fmt::format("mlp takes samples of at most {} values, got shape [{}]; use cnn", kMaxInputs, fmt::join(data.shape, ", ")));
  }
  auto in = static_cast<std::int64_t>(*values);
  std::vector<LayerMaker> layers;
  for (int i = 0; i < kLayers; ++i) {
    const bool last = i + 1 == kLayers;
    layers.push_back(named_maker<MlpLayer>(fmt::format("layers.{}", i), in, last ? data.classes : kMlpHidden, !last));
    in = kMlpHidden;
  }
  return {.layers = std::move(layers)};
}

}  // namespace epipe::model
