#include "epipe/model/decoder_config.h"

#include <array>
#include <utility>

#include "epipe/base/bounded_json.h"
#include "epipe/base/printable.h"
#include "epipe/model/config_fields.h"

namespace epipe::model {
namespace {

using Family = DecoderConfig::Family;
using RopeKind = layer::RopeConfig::Kind;
using nlohmann::json;

constexpr std::int64_t kMaxDecoderLayers = 1000;
constexpr std::int64_t kMaxDecoderWeights = std::int64_t{1} << 40;
constexpr std::int64_t kMaxDecoderSize = std::int64_t{1} << 24;
constexpr std::int64_t kLeastHeadDim = 2;
constexpr std::int64_t kMostHeadDim = 4096;
constexpr std::array<std::pair<Family, std::string_view>, 4> kFamilies = {
    {{Family::kGpt2, "gpt2"}, {Family::kLlama, "llama"}, {Family::kQwen2, "qwen2"}, {Family::kQwen3, "qwen3"}}};
constexpr std::array<std::pair<RopeKind, std::string_view>, 3> kRopes = {
    {{RopeKind::kDefault, "default"}, {RopeKind::kLinear, "linear"}, {RopeKind::kLlama3, "llama3"}}};

// The number of weights in matrices and embeddings. With sizes of at most 2^24 and 1000 layers a double can hold it.
double weights_of(const DecoderConfig& c) {
  const auto f = static_cast<double>(c.hidden_size);
  const double attention = 2 * f * static_cast<double>(c.head_dim) * static_cast<double>(c.heads + c.key_value_heads);
  return static_cast<double>(c.layers) * (attention + 3 * f * static_cast<double>(c.intermediate_size)) +
         2 * f * static_cast<double>(c.vocab_size);
}

void read_rope_values(ConfigFields& fields, layer::RopeConfig& rope) {
  fields.number("rope_theta", rope.theta, 1e12);
  fields.number("factor", rope.factor, 1e6);
  fields.number("low_freq_factor", rope.low_freq_factor, 1e6);
  fields.number("high_freq_factor", rope.high_freq_factor, 1e6);
  fields.number("original_max_position_embeddings", rope.original_positions, 1e9);
}

void check_rope(ConfigFields& fields, const layer::RopeConfig& rope) {
  if (rope.theta <= 0) fields.complain("expected rope_theta above 0");
  if (rope.factor <= 0) fields.complain("expected a factor of RoPE above 0");
  if (rope.kind == RopeKind::kLlama3 && rope.high_freq_factor <= rope.low_freq_factor) {
    fields.complain("expected high_freq_factor above low_freq_factor");
  }
}

// Either everything is in "rope_parameters", or "rope_theta" is beside "rope_scaling", whose "rope_type" was once called "type".
void read_rope(ConfigFields& fields, layer::RopeConfig& rope) {
  fields.number("rope_theta", rope.theta, 1e12);
  for (const char* const name : {"rope_scaling", "rope_parameters"}) {
    const json* const inner = fields.find(name);
    if (inner == nullptr) continue;
    if (!inner->is_object()) return fields.complain(fmt::format("expected {} to be an object", name));
    ConfigFields values(*inner);
    read_rope_values(values, rope);
    const json* const kind = values.find("rope_type") != nullptr ? values.find("rope_type") : values.find("type");
    if (kind != nullptr) {
      const auto* const found = std::find_if(kRopes.begin(), kRopes.end(), [&](const auto& rule) { return *kind == rule.second; });
      if (found == kRopes.end()) {
        return fields.complain(fmt::format("expected rope_type default, linear or llama3, got {}", ConfigFields::shown(*kind)));
      }
      rope.kind = found->first;
    }
    if (!values.complaint().empty()) fields.complain(values.complaint());
  }
  check_rope(fields, rope);
}

void read_end_tokens(ConfigFields& fields, DecoderConfig& c) {
  const json* const field = fields.find("eos_token_id");
  if (field == nullptr) return;
  const json list = field->is_array() ? *field : json::array({*field});
  if (list.size() > 64) return fields.complain("expected at most 64 entries in eos_token_id");
  for (const json& id : list) {
    if (!id.is_number_integer() || id < 0 || id > kMaxDecoderSize) {
      return fields.complain(fmt::format("expected token ids in eos_token_id, got {}", ConfigFields::shown(id)));
    }
    c.end_tokens.push_back(id.get<std::int64_t>());
  }
}

// Refuses attention that does not see all preceding tokens.
void refuse_windows(ConfigFields& fields) {
  fields.only("use_sliding_window", false);
  const json* const types = fields.find("layer_types");
  if (types == nullptr || !types->is_array()) return;
  for (const json& type : *types) {
    if (type != "full_attention") {
      return fields.complain(fmt::format("expected layer_types full_attention, got {}", ConfigFields::shown(type)));
    }
  }
}

void read_gpt2(ConfigFields& fields, DecoderConfig& c) {
  c = {.family = Family::kGpt2, .vocab_size = 50257, .hidden_size = 768, .layers = 12, .heads = 12, .positions = 1024, .norm_eps = 1e-5};
  c.tied = true;
  c.embedding_dropout = c.residual_dropout = c.attention_dropout = 0.1;
  fields.size("vocab_size", c.vocab_size, 1, kMaxDecoderSize);
  fields.size("n_embd", c.hidden_size);
  fields.size("n_layer", c.layers, 1, kMaxDecoderLayers);
  fields.size("n_head", c.heads);
  fields.size("n_positions", c.positions, 1, kMaxDecoderSize);
  c.intermediate_size = 4 * c.hidden_size;
  fields.size("n_inner", c.intermediate_size);
  fields.number("layer_norm_epsilon", c.norm_eps, 1);
  fields.number("embd_pdrop", c.embedding_dropout, 1);
  fields.number("resid_pdrop", c.residual_dropout, 1);
  fields.number("attn_pdrop", c.attention_dropout, 1);
  fields.text("activation_function", "gelu_new");
  fields.only("scale_attn_weights", true);
  fields.only("scale_attn_by_inverse_layer_idx", false);
  fields.only("add_cross_attention", false);
  c.key_value_heads = c.heads;
  c.attention_bias = c.mlp_bias = true;
}

void read_defaults(DecoderConfig& c, Family family) {
  c.family = family;
  if (family == Family::kLlama) return;
  c.vocab_size = 151936;
  c.intermediate_size = 22016;
  c.positions = 32768;
  c.key_value_heads = 32;
}

void read_llama_like(ConfigFields& fields, DecoderConfig& c, Family family) {
  read_defaults(c, family);
  fields.size("vocab_size", c.vocab_size, 1, kMaxDecoderSize);
  fields.size("hidden_size", c.hidden_size);
  fields.size("intermediate_size", c.intermediate_size);
  fields.size("num_hidden_layers", c.layers, 1, kMaxDecoderLayers);
  fields.size("num_attention_heads", c.heads);
  c.key_value_heads = family == Family::kLlama ? c.heads : c.key_value_heads;
  fields.size("num_key_value_heads", c.key_value_heads);
  c.head_dim = family == Family::kQwen3 ? 128 : c.hidden_size / std::max<std::int64_t>(1, c.heads);
  fields.size("head_dim", c.head_dim, kLeastHeadDim, kMostHeadDim);
  fields.size("max_position_embeddings", c.positions, 1, kMaxDecoderSize);
  fields.number("rms_norm_eps", c.norm_eps, 1);
  fields.number("attention_dropout", c.attention_dropout, 1);
  fields.text("hidden_act", "silu");
  if (family != Family::kQwen2) fields.flag("attention_bias", c.attention_bias);
  if (family == Family::kLlama) fields.flag("mlp_bias", c.mlp_bias);
  if (family == Family::kQwen2) c.attention_bias = true;
  refuse_windows(fields);
  read_rope(fields, c.rope);
}

void check(ConfigFields& fields, const DecoderConfig& c) {
  if (c.family == Family::kGpt2 && c.hidden_size % c.heads != 0) {
    fields.complain(fmt::format("{} heads do not divide {} features", c.heads, c.hidden_size));
  }
  if (c.heads % c.key_value_heads != 0) {
    fields.complain(fmt::format("{} key-value heads do not divide {} heads", c.key_value_heads, c.heads));
  }
  if (weights_of(c) > static_cast<double>(kMaxDecoderWeights)) fields.complain("expected sizes of a model with at most 2^40 weights");
  if (c.head_dim < kLeastHeadDim || c.head_dim > kMostHeadDim || c.head_dim % 2 != 0) {
    fields.complain(fmt::format("expected an even head_dim from {} to {}, got {}", kLeastHeadDim, kMostHeadDim, c.head_dim));
  }
}

}  // namespace

std::string_view name_of(Family family) {
  return std::find_if(kFamilies.begin(), kFamilies.end(), [&](const auto& rule) { return rule.first == family; })->second;
}

Result<DecoderConfig> parse_decoder_config(std::string_view text) {
  const auto parsed = parse_bounded_json(text);
  if (!parsed || !parsed.value().is_object()) return bad_file("expected a JSON object with a decoder's sizes");
  ConfigFields fields(parsed.value());
  const json* const type = fields.find("model_type");
  const auto* const family =
      std::find_if(kFamilies.begin(), kFamilies.end(), [&](const auto& rule) { return type != nullptr && *type == rule.second; });
  if (family == kFamilies.end()) {
    return bad_file("expected model_type gpt2, llama, qwen2 or qwen3, got " + (type == nullptr ? "none" : printable(type->dump(), 40)));
  }
  DecoderConfig c;
  if (family->first == Family::kGpt2) {
    read_gpt2(fields, c);
    c.head_dim = c.hidden_size / c.heads;
  } else {
    read_llama_like(fields, c, family->first);
  }
  fields.number("initializer_range", c.initializer_range, 100);
  fields.flag("tie_word_embeddings", c.tied);
  read_end_tokens(fields, c);
  check(fields, c);
  if (!fields.complaint().empty()) return bad_file(fields.complaint());
  return c;
}

std::string to_json_text(const DecoderConfig& c) {
  json object = {{"model_type", name_of(c.family)},
                 {"vocab_size", c.vocab_size},
                 {"initializer_range", c.initializer_range},
                 {"tie_word_embeddings", c.tied},
                 {"eos_token_id", c.end_tokens}};
  if (c.family == Family::kGpt2) {
    object.update({{"n_embd", c.hidden_size},
                   {"n_inner", c.intermediate_size},
                   {"n_layer", c.layers},
                   {"n_head", c.heads},
                   {"n_positions", c.positions},
                   {"layer_norm_epsilon", c.norm_eps},
                   {"embd_pdrop", c.embedding_dropout},
                   {"resid_pdrop", c.residual_dropout},
                   {"attn_pdrop", c.attention_dropout}});
    return object.dump();
  }
  object.update({{"hidden_size", c.hidden_size},
                 {"intermediate_size", c.intermediate_size},
                 {"num_hidden_layers", c.layers},
                 {"num_attention_heads", c.heads},
                 {"num_key_value_heads", c.key_value_heads},
                 {"head_dim", c.head_dim},
                 {"max_position_embeddings", c.positions},
                 {"rms_norm_eps", c.norm_eps},
                 {"attention_dropout", c.attention_dropout},
                 {"attention_bias", c.attention_bias},
                 {"mlp_bias", c.mlp_bias},
                 {"rope_parameters",
                  {{"rope_type", std::find_if(kRopes.begin(), kRopes.end(), [&](const auto& r) { return r.first == c.rope.kind; })->second},
                   {"rope_theta", c.rope.theta},
                   {"factor", c.rope.factor},
                   {"low_freq_factor", c.rope.low_freq_factor},
                   {"high_freq_factor", c.rope.high_freq_factor},
                   {"original_max_position_embeddings", c.rope.original_positions}}}});
  return object.dump();
}

}  // namespace epipe::model
