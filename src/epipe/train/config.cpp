#include "epipe/train/config.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace epipe::train {

CodecAt parse_codec_at(const std::string& text) {
  const auto colon = text.find(':');
  const auto equals = text.find('=', colon == std::string::npos ? 0 : colon);
  CodecAt at;
  const auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), at.cut);
  const bool good_cut = status == std::errc() && colon != std::string::npos && stop == text.data() + colon;
  const std::string direction = good_cut && equals != std::string::npos ? text.substr(colon + 1, equals - colon - 1) : "";
  if (direction != "forward" && direction != "backward") {
    throw std::invalid_argument(fmt::format("expected CUT:DIRECTION=CODEC such as 1:backward=sort:6+2, got \"{}\"", text));
  }
  at.forward = direction == "forward";
  at.spec = text.substr(equals + 1);
  return at;
}

std::map<std::string, std::string> client_settings(const TrainConfig& c) {
  std::map<std::string, std::string> settings = {{"seed", fmt::to_string(c.seed)},
                                                 {"data", c.data},
                                                 {"batch", fmt::to_string(c.batch)},
                                                 {"epochs", fmt::to_string(c.epochs)},
                                                 {"lr", fmt::to_string(c.lr)},
                                                 {"lr_schedule", c.lr_schedule},
                                                 {"lr_power", fmt::to_string(c.lr_power)},
                                                 {"warmup", fmt::to_string(c.warmup)},
                                                 {"clip", fmt::to_string(c.clip)},
                                                 {"shuffle", fmt::to_string(c.shuffle)},
                                                 {"weights", c.weights},
                                                 {"image_size", fmt::to_string(c.image_size)},
                                                 {"resize_on", c.resize_on},
                                                 {"augment", c.augment},
                                                 {"max_length", fmt::to_string(c.max_length)},
                                                 {"bpe", c.bpe},
                                                 {"replicas", fmt::to_string(c.replicas)},
                                                 {"bucket", fmt::to_string(c.bucket)},
                                                 {"data_part", fmt::to_string(c.data_part)}};
  if (c.loss != TrainConfig{}.loss) settings["loss"] = c.loss;  // runs of before there were others go on
  return settings;
}

std::string to_toml(const TrainConfig& c) {
  std::vector<std::string> codec_at;
  for (const CodecAt& at : c.codec_at) codec_at.push_back(fmt::format("{}:{}={}", at.cut, at.forward ? "forward" : "backward", at.spec));
  std::string text = "[train]\n";
  const auto add = [&](std::string_view key, const auto& value) { text += fmt::format("{} = {}\n", key, value); };
  const auto add_text = [&](std::string_view key, const std::string& value) {
    const bool literal = value.find_first_of("\"\\") != std::string::npos;  // where a basic string would need escapes
    if (!value.empty()) add(key, literal ? "'" + value + "'" : "\"" + value + "\"");
  };
  const auto add_list = [&](std::string_view key, const auto& values) {
    if (!values.empty()) add(key, nlohmann::json(values).dump());
  };
  add_text("model", c.model);
  add_text("weights", c.weights);
  add_text("data", c.data);
  add("image-size", c.image_size);
  add_text("resize-on", c.resize_on);
  add_text("augment", c.augment);
  add("max-length", c.max_length);
  add_text("bpe", c.bpe);
  add("data-part", c.data_part);
  add("load-threads", c.load_threads);
  add_list("cuts", c.cuts);
  add_text("balance", c.balance);
  add_list("place", c.place);
  add("chunks", c.chunks);
  add_text("schedule", c.schedule);
  add_text("codec", c.codec);
  add_text("codec-forward", c.codec_forward);
  add_text("codec-backward", c.codec_backward);
  add_list("codec-at", codec_at);
  add("moments", c.moments);
  add("recompute", c.recompute);
  add_text("precision", c.precision);
  add_text("loss-scaling", c.loss_scaling);
  add("threads", c.threads);
  add_list("devices", c.devices);
  add("epochs", c.epochs);
  add("batch", c.batch);
  add_text("loss", c.loss);
  add_text("optimizer", c.optimizer);
  add("momentum", c.update.momentum);
  add("nesterov", c.update.nesterov);
  add("weight-decay", c.update.weight_decay);
  add("lr", c.lr);
  add_text("lr-schedule", c.lr_schedule);
  add("lr-power", c.lr_power);
  add("warmup", c.warmup);
  add("clip", c.clip);
  add("seed", c.seed);
  add("no-shuffle", !c.shuffle);
  add("max-steps", c.max_steps);
  add("replicas", c.replicas);
  add("bucket", c.bucket);
  add_text("backend", c.backend);
  add_list("connect", c.connect);
  add("timeout", c.timeout);
  add("reconnect", c.reconnect);
  add_text("run-dir", c.run_dir);
  add("checkpoint-every", c.checkpoint_every);
  add("error-every", c.error_every);
  return text;
}

}  // namespace epipe::train
