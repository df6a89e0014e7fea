#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "epipe/base/result.h"

namespace epipe::model {

// The sizes of a RoBERTa or a BERT, with the names of Hugging Face's config.json. The defaults are roberta-base.
struct EncoderConfig {
  enum class Family : std::uint8_t { kRoberta, kBert };
  Family family = Family::kRoberta;
  std::int64_t vocab_size = 50265;
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 12;
  std::int64_t intermediate_size = 3072;
  std::int64_t max_position_embeddings = 514;
  std::int64_t type_vocab_size = 1;
  std::int64_t pad_token_id = 1;
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  double classifier_dropout = 0.1;
  double layer_norm_eps = 1e-5;
  double initializer_range = 0.02;
};

// Parses the text of a config.json. Missing fields have Hugging Face's defaults. For untrusted text: sizes are bounded.
Result<EncoderConfig> parse_encoder_config(std::string_view json);
// `path` is a config.json or a folder that has one.
Result<EncoderConfig> read_encoder_config(const std::string& path);
// The config of "roberta:ARGUMENT": ARGUMENT is the text itself if it begins with a brace, and then no file is opened; otherwise a path.
Result<EncoderConfig> encoder_config_of(const std::string& argument);
// parse_encoder_config() of the result gives an equal config.
std::string to_json_text(const EncoderConfig& config);

}  // namespace epipe::model
