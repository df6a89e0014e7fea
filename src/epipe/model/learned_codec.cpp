#include "epipe/model/learned_codec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <stdexcept>

#include "epipe/model/learned_layers.h"
#include "epipe/model/weights.h"

namespace epipe::model {
namespace {

constexpr std::int64_t kMax = 65536;

[[noreturn]] void refuse(std::string_view text) {
  throw std::invalid_argument(
      fmt::format("expected conv:20x3, conv:32x4,16, linear:50, linear:64,axis=s or linear:768,decay=0.83/500/2500, got \"{}\"", text));
}

std::vector<std::string_view> split(std::string_view text, char mark) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto at = text.find(mark);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text = text.substr(at + 1);
  }
}

template <typename T>
T number(std::string_view digits, T least, T most, std::string_view text) {
  T value{};
  const auto [stop, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (status != std::errc() || stop != digits.data() + digits.size() || !(value >= least && value <= most)) refuse(text);
  return value;
}

LearnedCodec parse_conv(std::string_view arguments, std::string_view text) {
  LearnedCodec codec;
  for (const std::string_view set : split(arguments, ',')) {
    const auto sizes = split(set, 'x');
    if (sizes.size() > 2 || codec.sets.size() == 2) refuse(text);
    codec.sets.push_back(
        {number<std::int64_t>(sizes[0], 1, kMax, text), sizes.size() == 2 ? number<std::int64_t>(sizes[1], 1, 64, text) : 1});
  }
  return codec;
}

LearnedCodec parse_linear(std::string_view arguments, std::string_view text) {
  const auto parts = split(arguments, ',');
  LearnedCodec codec;
  codec.rank = number<std::int64_t>(parts[0], 1, kMax, text);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (parts[i] == "axis=s" || parts[i] == "axis=f") {
      codec.over_tokens = parts[i] == "axis=s";
    } else if (parts[i].starts_with("decay=")) {
      const auto values = split(parts[i].substr(6), '/');
      if (values.size() != 3) refuse(text);
      codec.decay = number<double>(values[0], 1e-6, 1.0, text);
      codec.decay_every = number<std::int64_t>(values[1], 1, std::int64_t{1} << 40, text);
      codec.decay_until = number<std::int64_t>(values[2], 0, std::int64_t{1} << 40, text);
    } else {
      refuse(text);
    }
  }
  return codec;
}

}  // namespace

SplitSpec split_learned(std::string_view spec) {
  const auto end = spec.find('>');
  const std::string_view head = spec.substr(0, end);
  const auto colon = head.find(':');
  const std::string_view name = head.substr(0, colon);
  if (name != "conv" && name != "linear") return {.wire = std::string(spec)};
  if (colon == std::string_view::npos) refuse(head);
  const std::string_view arguments = head.substr(colon + 1);
  const std::string_view rest = end == std::string_view::npos ? "none" : spec.substr(end + 1);
  return {name == "conv" ? parse_conv(arguments, head) : parse_linear(arguments, head), std::string(head), std::string(rest)};
}

std::size_t insert_learned_codec(Architecture& architecture, std::size_t cut, const LearnedCodec& codec,
                                 const std::vector<std::int64_t>& shape) {
  const std::string name = fmt::format("{}{}", kCodecPrefix, architecture.layers.at(cut).name);
  const auto halves = [=] { return codec.sets.empty() ? make_linear_codec(name, codec, shape) : make_conv_codec(name, codec, shape); };
  halves();  // refuses a codec that does not fit here, not when its layers are made
  const auto at = architecture.layers.begin() + static_cast<std::ptrdiff_t>(cut);
  architecture.layers.insert(
      at, {{name + ".encode", [halves] { return halves().encode; }}, {name + ".decode", [halves] { return halves().decode; }}});
  return cut + 1;
}

}  // namespace epipe::model
