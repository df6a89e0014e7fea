#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "epipe/base/result.h"
#include "epipe/layer/rope.h"

namespace epipe::model {

// The sizes of a decoder, as in Hugging Face's config.json.
struct DecoderConfig {
  enum class Family : std::uint8_t { kGpt2, kLlama, kQwen2, kQwen3 };
  Family family = Family::kLlama;
  std::int64_t vocab_size = 32000;
  std::int64_t hidden_size = 4096;
  std::int64_t intermediate_size = 11008;
  std::int64_t layers = 32;
  std::int64_t heads = 32;
  std::int64_t key_value_heads = 32;  // shared by groups of heads
  std::int64_t head_dim = 128;
  std::int64_t positions = 2048;  // maximum number of tokens
  double norm_eps = 1e-6;
  double initializer_range = 0.02;
  bool tied = false;            // embedding and head are one matrix
  bool attention_bias = false;  // for query, key, value and output; qwen2 has the first three
  bool mlp_bias = false;
  layer::RopeConfig rope{};
  double embedding_dropout = 0;  // gpt2
  double residual_dropout = 0;   // gpt2
  double attention_dropout = 0;
  std::vector<std::int64_t> end_tokens{};  // any of them ends a text

  bool operator==(const DecoderConfig&) const = default;
};

// The family's model_type in config.json: "qwen2".
std::string_view name_of(DecoderConfig::Family family);

// Parses the text of a config.json of gpt2, llama, qwen2 or qwen3. Missing fields have Hugging Face's defaults. For untrusted text: sizes
// are bounded, and an unsupported setting is an error that names it.
Result<DecoderConfig> parse_decoder_config(std::string_view json);
// The config of the decoder "hf:ARGUMENT": ARGUMENT is the text of a config.json if it begins with a brace, otherwise a folder. Throws
// std::invalid_argument.
DecoderConfig hf_decoder_config(const std::string& argument);
// parse_decoder_config() of the result gives an equal config.
std::string to_json_text(const DecoderConfig& config);

}  // namespace epipe::model
