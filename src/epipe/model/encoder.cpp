// roberta-base, roberta:DIR, and hf:DIR of a roberta or bert: embeddings, attention and feed-forward of every block as two layers, the
// classification head, under the names of Hugging Face's RobertaForSequenceClassification and BertForSequenceClassification. The side input
// is the attention mask [B, T], 1 where a token is.
#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "epipe/layer/initialization.h"
#include "epipe/layer/modules.h"
#include "epipe/layer/random.h"
#include "epipe/model/encoder_config.h"
#include "epipe/model/zoo.h"

namespace epipe::model {
namespace {

using layer::Embedding;
using layer::ForwardContext;
using layer::LayerNorm;
using layer::Linear;
using layer::Tensors;

// The base of all layers: the config, and normally distributed initial weights.
class EncoderLayer : public layer::Layer {
 public:
  EncoderLayer(const std::string& name, const std::string& prefix, const EncoderConfig& config) : Layer(name, prefix), config_(config) {}
  void initialize(std::uint64_t seed) override {
    layer::initialize(*this, seed, {.linear = layer::Initialization::Rule::kNormal, .deviation = config_.initializer_range});
  }

 protected:
  torch::Tensor drop(const torch::Tensor& x, double p, const ForwardContext& at, std::string_view what) const {
    return layer::dropout(x, p, at, fmt::format("{}.{}", name(), what));
  }
  const EncoderConfig& config() const { return config_; }

 private:
  EncoderConfig config_;
};

// The score of a masked token.
double lowest(const torch::Tensor& scores) { return scores.scalar_type() == torch::kHalf ? -65504.0 : -3.4028234e38; }

// "dense" and "LayerNorm": y = norm(dense(x) + residual)
class Output final : public torch::nn::Module {
 public:
  Output(std::int64_t in, const EncoderConfig& c)
      : dense_(register_module("dense", std::make_shared<Linear>(in, c.hidden_size))),
        norm_(register_module("LayerNorm", std::make_shared<LayerNorm>(c.hidden_size, c.layer_norm_eps))) {}

  const Linear& dense() const { return *dense_; }
  torch::Tensor norm(const torch::Tensor& x) const { return norm_->forward(x); }

 private:
  std::shared_ptr<Linear> dense_;  // shared with the module tree, which owns them
  std::shared_ptr<LayerNorm> norm_;
};

bool is_bert(const EncoderConfig& c) { return c.family == EncoderConfig::Family::kBert; }
// The prefix of all weight names but the head's.
std::string prefix_of(const EncoderConfig& c) { return is_bert(c) ? "bert." : "roberta."; }

// [B, T] token ids, and for pairs of sentences [B, T] which of the two -> [B, T, F]
class EncoderEmbeddings final : public EncoderLayer {
 public:
  explicit EncoderEmbeddings(const EncoderConfig& c)
      : EncoderLayer("embeddings", prefix_of(c) + "embeddings.", c),
        word_(register_module("word_embeddings", std::make_shared<Embedding>(c.vocab_size, c.hidden_size))),
        position_(register_module("position_embeddings", std::make_shared<Embedding>(c.max_position_embeddings, c.hidden_size))),
        type_(register_module("token_type_embeddings", std::make_shared<Embedding>(c.type_vocab_size, c.hidden_size))),
        norm_(register_module("LayerNorm", std::make_shared<LayerNorm>(c.hidden_size, c.layer_norm_eps))) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    // The padding's row gets no gradient, as in Hugging Face.
    const auto words = torch::embedding(word_->weight, in[0], config().pad_token_id);
    const auto types = in.size() > 1 ? type_->forward(in[1]) : type_->weight[0];
    return {drop(norm_->forward(words + types + positions(in[0])), config().hidden_dropout_prob, at, "dropout")};
  }
  double flops(const Tensors&, const Tensors& out) const override { return 10.0 * static_cast<double>(out[0].numel()); }
  void initialize(std::uint64_t seed) override {
    EncoderLayer::initialize(seed);
    const torch::NoGradGuard no_grad;
    word_->weight[config().pad_token_id].zero_();
    if (!is_bert(config())) position_->weight[config().pad_token_id].zero_();
  }

 private:
  torch::Tensor positions(const torch::Tensor& ids) const {
    if (is_bert(config())) return position_->weight.narrow(0, 0, ids.size(1));
    // Tokens count from pad + 1; padding itself stays at pad.
    const auto pad = config().pad_token_id;
    const auto real = ids.ne(pad).to(torch::kInt64);
    return torch::embedding(position_->weight, real.cumsum(1) * real + pad, pad);
  }

  std::shared_ptr<Embedding> word_;  // all shared with the module tree, which owns them
  std::shared_ptr<Embedding> position_;
  std::shared_ptr<Embedding> type_;
  std::shared_ptr<LayerNorm> norm_;
};

// [B, T, F] -> [B, T, F]
class EncoderAttention final : public EncoderLayer {
 public:
  EncoderAttention(std::int64_t block, const EncoderConfig& c)
      : EncoderLayer(fmt::format("layer.{}.attention", block), fmt::format("{}encoder.layer.{}.attention.", prefix_of(c), block), c),
        self_(register_module("self", std::make_shared<torch::nn::Module>())),
        query_(self_->register_module("query", std::make_shared<Linear>(c.hidden_size, c.hidden_size))),
        key_(self_->register_module("key", std::make_shared<Linear>(c.hidden_size, c.hidden_size))),
        value_(self_->register_module("value", std::make_shared<Linear>(c.hidden_size, c.hidden_size))),
        output_(register_module("output", std::make_shared<Output>(c.hidden_size, c))) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    const auto batch = in[0].size(0);
    const auto length = in[0].size(1);
    const auto heads = config().num_attention_heads;
    const auto width = config().hidden_size / heads;
    // [B, T, F] -> [B, heads, T, width]
    const auto split = [&](const torch::Tensor& x) { return x.view({batch, length, heads, width}).transpose(1, 2); };
    // [B, heads, T, T], and softmax, in float32 under mixed precision too
    auto scores = torch::matmul(split(query_->forward(in[0], at)), split(key_->forward(in[0], at)).transpose(-1, -2)).to(torch::kFloat32) /
                  std::sqrt(static_cast<double>(width));
    if (!at.side.empty()) {
      scores = scores.masked_fill(at.side[0].view({batch, 1, 1, length}) == 0, lowest(scores));
    }
    const auto weights = drop(torch::softmax(scores, -1), config().attention_probs_dropout_prob, at, "self.dropout");
    const auto mixed = torch::matmul(weights, split(value_->forward(in[0], at))).transpose(1, 2).reshape({batch, length, -1});
    return {output_->norm(drop(output_->dense().forward(mixed, at), config().hidden_dropout_prob, at, "output.dropout") + in[0])};
  }
  double flops(const Tensors& in, const Tensors&) const override {
    const auto tokens = in[0].size(0) * in[0].size(1);
    return 4 * query_->flops(tokens) + 4.0 * static_cast<double>(in[0].numel() * in[0].size(1));
  }

 private:
  std::shared_ptr<torch::nn::Module> self_;  // all shared with the module tree, which owns them
  std::shared_ptr<Linear> query_;
  std::shared_ptr<Linear> key_;
  std::shared_ptr<Linear> value_;
  std::shared_ptr<Output> output_;
};

// [B, T, F] -> [B, T, F]
class EncoderFeedForward final : public EncoderLayer {
 public:
  EncoderFeedForward(std::int64_t block, const EncoderConfig& c)
      : EncoderLayer(fmt::format("layer.{}.ffn", block), fmt::format("{}encoder.layer.{}.", prefix_of(c), block), c),
        intermediate_(register_module("intermediate", std::make_shared<torch::nn::Module>())),
        up_(intermediate_->register_module("dense", std::make_shared<Linear>(c.hidden_size, c.intermediate_size))),
        output_(register_module("output", std::make_shared<Output>(c.intermediate_size, c))) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    const auto y = output_->dense().forward(torch::gelu(up_->forward(in[0], at)), at);
    return {output_->norm(drop(y, config().hidden_dropout_prob, at, "output.dropout") + in[0])};
  }
  double flops(const Tensors& in, const Tensors&) const override { return 2 * up_->flops(in[0].size(0) * in[0].size(1)); }

 private:
  std::shared_ptr<torch::nn::Module> intermediate_;  // all shared with the module tree, which owns them
  std::shared_ptr<Linear> up_;
  std::shared_ptr<Output> output_;
};

// [B, T, F] -> [B, classes], from the first token
class Head final : public EncoderLayer {
 public:
  Head(const EncoderConfig& c, std::int64_t classes)
      : EncoderLayer("classifier", "classifier.", c),
        dense_(register_module("dense", std::make_shared<Linear>(c.hidden_size, c.hidden_size))),
        out_(register_module("out_proj", std::make_shared<Linear>(c.hidden_size, classes))) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    const double p = config().classifier_dropout;
    const auto first = drop(in[0].select(1, 0), p, at, "dropout");
    return {out_->forward(drop(torch::tanh(dense_->forward(first, at)), p, at, "dense.dropout"), at)};
  }
  double flops(const Tensors& in, const Tensors&) const override { return dense_->flops(in[0].size(0)) + out_->flops(in[0].size(0)); }

 private:
  std::shared_ptr<Linear> dense_;  // shared with the module tree, which owns them
  std::shared_ptr<Linear> out_;
};

// BERT's head: a pretrained pooler, and a linear layer.
class BertHead final : public EncoderLayer {
 public:
  BertHead(const EncoderConfig& c, std::int64_t classes)
      : EncoderLayer("classifier", "", c),
        bert_(register_module("bert", std::make_shared<torch::nn::Module>())),
        pooler_(bert_->register_module("pooler", std::make_shared<torch::nn::Module>())),
        dense_(pooler_->register_module("dense", std::make_shared<Linear>(c.hidden_size, c.hidden_size))),
        out_(register_module("classifier", std::make_shared<Linear>(c.hidden_size, classes))) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    const auto pooled = torch::tanh(dense_->forward(in[0].select(1, 0), at));
    return {out_->forward(drop(pooled, config().classifier_dropout, at, "dropout"), at)};
  }
  double flops(const Tensors& in, const Tensors&) const override { return dense_->flops(in[0].size(0)) + out_->flops(in[0].size(0)); }

 private:
  std::shared_ptr<torch::nn::Module> bert_;  // all shared with the module tree, which owns them
  std::shared_ptr<torch::nn::Module> pooler_;
  std::shared_ptr<Linear> dense_;
  std::shared_ptr<Linear> out_;
};

Architecture make_layers(const EncoderConfig& c, const data::DataSpec& data) {
  require_text(is_bert(c) ? "bert" : "roberta", data);
  const std::int64_t longest = is_bert(c) ? c.max_position_embeddings : c.max_position_embeddings - c.pad_token_id - 1;
  if (data.vocabulary > c.vocab_size || data.shape[0] > longest) {
    throw std::invalid_argument(fmt::format("expected at most {} tokens out of {}, the data has {} out of {}", longest, c.vocab_size,
                                            data.shape[0], data.vocabulary));
  }
  std::vector<LayerMaker> layers = {maker<EncoderEmbeddings>("embeddings", c)};
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) {
    layers.push_back(maker<EncoderAttention>(fmt::format("layer.{}.attention", i), i, c));
    layers.push_back(maker<EncoderFeedForward>(fmt::format("layer.{}.ffn", i), i, c));
  }
  layers.push_back(is_bert(c) ? maker<BertHead>("classifier", c, data.classes) : maker<Head>("classifier", c, data.classes));
  return {.layers = std::move(layers), .positions = longest, .vocabulary = c.vocab_size, .lora_targets = {"query", "value"}};
}

EncoderConfig config_of(const std::string& argument) {
  const auto config = encoder_config_of(argument);
  if (!config) throw std::invalid_argument(config.error().message);
  return config.value();
}

}  // namespace

Architecture make_roberta_base(const data::DataSpec& data, const std::string&) { return make_layers({}, data); }

Architecture make_roberta(const data::DataSpec& data, const std::string& argument) { return make_layers(config_of(argument), data); }

std::string encoder_config_text(const std::string& argument) { return to_json_text(config_of(argument)); }

}  // namespace epipe::model
