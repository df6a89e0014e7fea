#include "epipe/model/decoder_layers.h"

#include <stdexcept>

#include "epipe/layer/attention.h"
#include "epipe/layer/autocast.h"

namespace epipe::model {
namespace {

using layer::ForwardContext;
using layer::Tensors;

bool is_gpt2(const DecoderConfig& c) { return c.family == DecoderConfig::Family::kGpt2; }

// [B, T, F] -> [B, T, F]
class DecoderNorm final : public DecoderLayer {
 public:
  explicit DecoderNorm(const DecoderConfig& c) : DecoderLayer("norm", is_gpt2(c) ? "transformer." : "model.", c) {
    if (is_gpt2(c)) {
      layer_norm_ = register_module("ln_f", std::make_shared<layer::LayerNorm>(c.hidden_size, c.norm_eps));
    } else {
      rms_norm_ = register_module("norm", std::make_shared<layer::RmsNorm>(c.hidden_size, c.norm_eps));
    }
  }
  Tensors forward(const Tensors& in, const ForwardContext&) override {
    return {layer_norm_ ? layer_norm_->forward(in[0]) : rms_norm_->forward(in[0])};
  }
  double flops(const Tensors& in, const Tensors&) const override { return 6.0 * static_cast<double>(in[0].numel()); }

 private:
  std::shared_ptr<layer::LayerNorm> layer_norm_;  // one of the two; shared with the module tree, which owns it
  std::shared_ptr<layer::RmsNorm> rms_norm_;
};

class DecoderHead final : public DecoderLayer {
 public:
  DecoderHead(const DecoderConfig& c, bool for_loss) : DecoderLayer("head", "lm_head.", c), for_loss_(for_loss) {
    if (!c.tied) weight_ = register_parameter("weight", layer::new_weight({c.vocab_size, c.hidden_size}));
  }

  Tensors forward(const Tensors& in, const ForwardContext&) override {
    const torch::Tensor x = in[0].to(layer::product_type(in[0]));
    const torch::Tensor w = matrix();
    if (for_loss_) return {x, w};
    if (w.is_meta()) return {torch::empty({x.size(0), x.size(1), config().vocab_size}, w.options())};
    return {torch::linear(x, layer::in_type_of(w, x))};
  }
  double flops(const Tensors& in, const Tensors&) const override {
    return 2.0 * static_cast<double>(in[0].numel()) * static_cast<double>(config().vocab_size);
  }

  void use(std::shared_ptr<DecoderEmbedding> embedding) { embedding_ = std::move(embedding); }
  void finish_gradients() override {
    if (!alias_.defined() || !alias_.grad().defined()) return;
    torch::Tensor shared = embedding_->matrix();
    shared.mutable_grad() = shared.grad().defined() ? shared.grad() + alias_.grad() : alias_.grad();
    alias_.mutable_grad() = torch::Tensor();
  }
  std::vector<std::pair<std::string, torch::Tensor>> late_gradients() const override {
    if (!embedding_ || !embedding_->matrix().requires_grad()) return {};
    for (const auto& item : embedding_->named_parameters()) {
      if (item.value().is_same(embedding_->matrix())) return {{embedding_->full_name(item.key()), item.value()}};
    }
    throw std::logic_error("the matrix of an embedding is none of its parameters");
  }
  void discard_batch() override {
    if (alias_.defined()) alias_.mutable_grad() = torch::Tensor();
  }

 private:
  // A separate leaf over the embedding's values.
  torch::Tensor matrix() {
    if (weight_.defined()) return weight_;
    if (!embedding_) {  // inspected on its own: only shapes are needed
      return torch::empty({config().vocab_size, config().hidden_size}, torch::TensorOptions(torch::kFloat32).device(torch::kMeta));
    }
    const torch::Tensor shared = embedding_->matrix();
    if (!alias_.defined() || alias_.data_ptr() != shared.data_ptr() || alias_.requires_grad() != shared.requires_grad()) {
      alias_ = shared.detach().requires_grad_(shared.requires_grad());
    }
    return alias_;
  }

  bool for_loss_;
  torch::Tensor weight_;                         // its own; undefined if it is tied
  std::shared_ptr<DecoderEmbedding> embedding_;  // if it is tied: a layer of the same worker
  torch::Tensor alias_;
};

}  // namespace

std::int64_t DecoderLayer::first_position(const ForwardContext& at) { return at.cache != nullptr ? at.cache->length() : 0; }

torch::Tensor DecoderLayer::attend(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                                   const ForwardContext& at) const {
  layer::KeyValueCache::Entry all{key, value};
  if (at.cache != nullptr) all = at.cache->append(name(), key, value);
  return layer::causal_attention_with_dropout(query, all.key, all.value, config_.attention_dropout, at, name() + ".attention");
}

double DecoderLayer::attention_flops(const torch::Tensor& x) const {  // half of the scores are for later tokens
  return 2.0 * static_cast<double>(x.size(0) * x.size(1)) * static_cast<double>(x.size(1)) *
         static_cast<double>(config_.heads * config_.head_dim);
}

std::shared_ptr<layer::Layer> make_decoder_norm(const DecoderConfig& config) { return std::make_shared<DecoderNorm>(config); }

std::shared_ptr<layer::Layer> make_decoder_head(const DecoderConfig& config, bool for_loss) {
  return std::make_shared<DecoderHead>(config, for_loss);
}

void tie(layer::Layer& head, std::shared_ptr<DecoderEmbedding> embedding) { dynamic_cast<DecoderHead&>(head).use(std::move(embedding)); }

}  // namespace epipe::model
