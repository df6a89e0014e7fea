// hf:DIR, a Hugging Face folder: config.json says which architecture it is.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "epipe/base/bounded_json.h"
#include "epipe/base/printable.h"
#include "epipe/model/decoder_layers.h"
#include "epipe/model/hf_folder.h"
#include "epipe/model/zoo.h"

namespace epipe::model {
namespace {

template <typename T>
T value_or_refuse(Result<T> result, const std::string& what) {
  if (!result) throw std::invalid_argument(fmt::format("{}: {}", what, result.error().message));
  return std::move(result).value();
}

std::string what_is(const std::string& argument) { return argument.starts_with('{') ? "the config" : argument + "/config.json"; }

std::string config_text(const std::string& argument) {
  if (argument.starts_with('{')) return argument;
  auto text = read_hf_config(argument);
  if (!text) throw std::invalid_argument(text.error().message);
  return std::move(text).value();
}

std::string model_type(const std::string& text, const std::string& what) {
  const auto config = parse_bounded_json(text);
  if (!config || !config.value().is_object()) throw std::invalid_argument(what + ": expected a JSON object");
  const auto found = config.value().find("model_type");
  if (found == config.value().end() || !found->is_string()) throw std::invalid_argument(what + ": expected a model_type");
  return found->get<std::string>();
}

void check_fits(const DecoderConfig& c, const data::DataSpec& data) {
  if (data.shape[0] > c.positions) {
    throw std::invalid_argument(fmt::format("expected at most {} tokens, the positions of the model, got {}; use a smaller --max-length",
                                            c.positions, data.shape[0]));
  }
  if (data.vocabulary > c.vocab_size) {
    throw std::invalid_argument(
        fmt::format("expected token ids below {}, the model's vocabulary, but the data's go up to {}; is this the "
                    "model's own tokenizer?",
                    c.vocab_size, data.vocabulary - 1));
  }
}

// Ties the first and the last layer, which share a matrix and are on one worker.
void tie_ends(const std::vector<std::shared_ptr<layer::Layer>>& layers) {
  if (!layers.back()) return;
  auto embedding = std::dynamic_pointer_cast<DecoderEmbedding>(layers.front());
  if (!embedding) throw std::logic_error("the head of a tied model is here, and its embedding is not");
  tie(*layers.back(), std::move(embedding));
}

Architecture make_decoder(const DecoderConfig& c, const data::DataSpec& data) {
  require_text("a decoder", data);
  check_fits(c, data);
  const bool gpt2 = c.family == DecoderConfig::Family::kGpt2;
  std::vector<LayerMaker> layers;
  layers.push_back(
      {"embedding", [=]() -> std::shared_ptr<layer::Layer> { return gpt2 ? make_gpt2_embedding(c) : make_llama_embedding(c); }});
  for (std::int64_t i = 0; i < c.layers; ++i) {
    layers.push_back({fmt::format("block.{}", i), [=] { return gpt2 ? make_gpt2_block(c, i) : make_llama_block(c, i); }});
  }
  layers.push_back({"norm", [=] { return make_decoder_norm(c); }});
  layers.push_back({"head", [=, for_loss = data.next_token] { return make_decoder_head(c, for_loss); }});
  Architecture made{.layers = std::move(layers)};
  made.task_head = false;
  made.input_first = gpt2;
  made.positions = c.positions;
  made.vocabulary = c.vocab_size;
  made.lora_targets = gpt2 ? std::vector<std::string>{"c_attn"} : std::vector<std::string>{"q_proj", "v_proj"};
  if (c.tied) made.share = tie_ends;
  return made;
}

bool is_decoder(const std::string& type) { return type == "gpt2" || type == "llama" || type == "qwen2" || type == "qwen3"; }

bool is_encoder(const std::string& type) { return type == "roberta" || type == "bert"; }

[[noreturn]] void refuse_type(const std::string& type, const std::string& what) {
  throw std::invalid_argument(
      fmt::format("{}: expected model_type gpt2, llama, qwen2, qwen3, bert or roberta, got \"{}\"", what, printable(type.substr(0, 40))));
}

}  // namespace

Architecture make_hf(const data::DataSpec& data, const std::string& argument) {
  const std::string text = config_text(argument);
  const std::string what = what_is(argument);
  const std::string type = model_type(text, what);
  if (is_encoder(type)) return make_roberta(data, text);
  if (!is_decoder(type)) refuse_type(type, what);
  return make_decoder(value_or_refuse(parse_decoder_config(text), what), data);
}

std::string hf_config_text(const std::string& argument) {
  const std::string text = config_text(argument);
  const std::string what = what_is(argument);
  const std::string type = model_type(text, what);
  if (is_encoder(type)) return encoder_config_text(text);
  if (!is_decoder(type)) refuse_type(type, what);
  return to_json_text(value_or_refuse(parse_decoder_config(text), what));
}

DecoderConfig hf_decoder_config(const std::string& argument) {
  return value_or_refuse(parse_decoder_config(config_text(argument)), what_is(argument));
}

}  // namespace epipe::model
