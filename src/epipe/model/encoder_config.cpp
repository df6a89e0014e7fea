#include "epipe/model/encoder_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "epipe/base/bounded_json.h"
#include "epipe/base/file.h"
#include "epipe/model/config_fields.h"

namespace epipe::model {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxBytes = 1 << 20;
constexpr std::int64_t kMaxLayers = 1000;
constexpr std::int64_t kMaxWeights = std::int64_t{1} << 34;  // the largest existing model has 1.1e10

// The number of weights in embeddings, attention and feed-forward. With sizes of at most 2^20 and 1000 layers 63 bits suffice.
std::int64_t matrix_values(const EncoderConfig& c) {
  const std::int64_t rows = c.vocab_size + c.max_position_embeddings + c.type_vocab_size;
  return c.hidden_size * (rows + c.num_hidden_layers * (4 * c.hidden_size + 2 * c.intermediate_size));
}

}  // namespace

Result<EncoderConfig> parse_encoder_config(std::string_view text) {
  const auto parsed = parse_bounded_json(text);
  if (!parsed || !parsed.value().is_object()) return bad_file("expected a JSON object with an encoder's sizes");
  const json& object = parsed.value();
  EncoderConfig c;
  c.max_position_embeddings = 512;
  c.type_vocab_size = 2;
  c.layer_norm_eps = 1e-12;
  ConfigFields fields(object);
  if (const json* const type = fields.find("model_type"); type != nullptr && *type == "bert") {
    c.family = EncoderConfig::Family::kBert;
    c.vocab_size = 30522;
    c.pad_token_id = 0;
  } else {
    fields.text("model_type", "roberta");
  }
  fields.text("hidden_act", "gelu");
  fields.text("position_embedding_type", "absolute");
  fields.size("vocab_size", c.vocab_size);
  fields.size("hidden_size", c.hidden_size);
  fields.size("num_hidden_layers", c.num_hidden_layers, 1, kMaxLayers);
  fields.size("num_attention_heads", c.num_attention_heads);
  fields.size("intermediate_size", c.intermediate_size);
  fields.size("max_position_embeddings", c.max_position_embeddings);
  fields.size("type_vocab_size", c.type_vocab_size);
  fields.size("pad_token_id", c.pad_token_id, 0);
  fields.number("hidden_dropout_prob", c.hidden_dropout_prob, 1);
  fields.number("attention_probs_dropout_prob", c.attention_probs_dropout_prob, 1);
  c.classifier_dropout = c.hidden_dropout_prob;
  fields.number("classifier_dropout", c.classifier_dropout, 1);
  fields.number("layer_norm_eps", c.layer_norm_eps, 1);
  fields.number("initializer_range", c.initializer_range, 100);
  if (c.hidden_size % c.num_attention_heads != 0) {
    fields.complain(fmt::format("{} heads do not divide hidden_size {}", c.num_attention_heads, c.hidden_size));
  }
  if (c.pad_token_id >= c.vocab_size) fields.complain(fmt::format("pad_token_id {} is not one of {} tokens", c.pad_token_id, c.vocab_size));
  if (c.family == EncoderConfig::Family::kRoberta && c.pad_token_id + 1 >= c.max_position_embeddings)
    fields.complain("max_position_embeddings leaves no position after the padding's");
  if (const std::int64_t weights = matrix_values(c); weights > kMaxWeights) {
    fields.complain(fmt::format("expected sizes of a model with at most {} weights, got {}", kMaxWeights, weights));
  }
  if (!fields.complaint().empty()) return bad_file(fields.complaint());
  return c;
}

Result<EncoderConfig> read_encoder_config(const std::string& path) {
  const std::string file = path.ends_with(".json") ? path : path + "/config.json";
  const auto bytes = read_file(file, kMaxBytes);
  if (!bytes) return bytes.error();
  auto config = parse_encoder_config({reinterpret_cast<const char*>(bytes.value().data()), bytes.value().size()});
  if (!config) return bad_file(fmt::format("{}: {}", file, config.error().message));
  return config;
}

Result<EncoderConfig> encoder_config_of(const std::string& argument) {
  return argument.starts_with('{') ? parse_encoder_config(argument) : read_encoder_config(argument);
}

std::string to_json_text(const EncoderConfig& c) {
  const json object = {{"model_type", c.family == EncoderConfig::Family::kBert ? "bert" : "roberta"},
                       {"vocab_size", c.vocab_size},
                       {"hidden_size", c.hidden_size},
                       {"num_hidden_layers", c.num_hidden_layers},
                       {"num_attention_heads", c.num_attention_heads},
                       {"intermediate_size", c.intermediate_size},
                       {"max_position_embeddings", c.max_position_embeddings},
                       {"type_vocab_size", c.type_vocab_size},
                       {"pad_token_id", c.pad_token_id},
                       {"hidden_dropout_prob", c.hidden_dropout_prob},
                       {"attention_probs_dropout_prob", c.attention_probs_dropout_prob},
                       {"classifier_dropout", c.classifier_dropout},
                       {"layer_norm_eps", c.layer_norm_eps},
                       {"initializer_range", c.initializer_range}};
  return object.dump();
}

}  // namespace epipe::model
