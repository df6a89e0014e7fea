#include "epipe/train/setting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "epipe/base/json_type.h"
#include "epipe/base/printable.h"

namespace epipe::train {
namespace {

using nlohmann::json;

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(const std::string& value) { return value; }
std::string text_of(const CodecAt& value) { return to_string(value); }
template <typename T>
std::string text_of(const T& value) {
  return fmt::to_string(value);
}

template <typename T>
std::vector<std::string> texts_of_list(const std::vector<T>& values) {
  std::vector<std::string> texts;
  for (const T& value : values) texts.push_back(text_of(value));
  return texts;
}

// A codec at a cut is written as its text.
template <typename T>
json json_of_value(const T& value) {
  return value;
}
json json_of_value(const std::vector<CodecAt>& value) { return texts_of_list(value); }

std::string quoted(const std::string& text) {
  const bool literal = text.find_first_of("\"\\") != std::string::npos;  // where a basic string would need escapes
  return literal ? "'" + text + "'" : "\"" + text + "\"";
}

// Empty: the key is left out.
template <typename T>
std::string toml_of(const T& value) {
  return text_of(value);
}
std::string toml_of(const std::string& value) { return value.empty() ? "" : quoted(value); }
template <typename T>
std::string toml_of(const std::vector<T>& values) {
  return values.empty() ? "" : json_of_value(values).dump();
}

bool has_scope(const Setting& setting, std::initializer_list<Scope> scopes) {
  return std::find(scopes.begin(), scopes.end(), setting.scope) != scopes.end();
}

[[noreturn]] void refuse(const Setting& setting, const std::string& what) {
  throw std::invalid_argument(fmt::format("the plan's {} {}", setting.name, what));
}

void check_entry(const Setting& setting, const std::string& text) {
  if (text.size() > kMaxTextBytes) refuse(setting, fmt::format("is longer than {} bytes", kMaxTextBytes));
  if (!setting.complaint(text).empty()) refuse(setting, fmt::format("is {}, expected {}", printable(text), setting.expected()));
}

// The type in JSON: a codec at a cut is its text.
template <typename T>
using InJson = std::conditional_t<std::is_same_v<T, std::vector<CodecAt>>, std::vector<std::string>, T>;

template <typename T>
T value_from(const json& value) {
  return value.get<T>();
}
template <>
std::vector<CodecAt> value_from(const json& value) {
  std::vector<CodecAt> all;
  for (const auto& text : value) all.push_back(parse_codec_at(text.get<std::string>()));
  return all;
}

template <typename T>
void set_value(const Setting& setting, T& out, const json& value) {
  if (!holds<InJson<T>>(value)) refuse(setting, "has the wrong type");
  if constexpr (IsList<T>::value) {
    if (value.size() > kMaxEntries) refuse(setting, fmt::format("has more than {} entries", kMaxEntries));
    for (const json& entry : value) check_entry(setting, entry.is_string() ? entry.get<std::string>() : entry.dump());
  } else {
    check_entry(setting, value.is_string() ? value.get<std::string>() : value.dump());
  }
  out = value_from<T>(value);
}

// Whether the value, or an entry of the list, is a number.
bool is_number(const Setting& setting) {
  return std::visit(
      [](const auto* value) {
        using T = std::remove_cvref_t<decltype(*value)>;
        return (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) || std::is_same_v<T, std::vector<int>>;
      },
      setting.value);
}

bool is_whole(const Setting& setting) { return is_number(setting) && !std::holds_alternative<double*>(setting.value); }

// NaN if the text is not a number of the setting's kind.
double number_in(const Setting& setting, const std::string& text) {
  const char* const end = text.data() + text.size();
  if (is_whole(setting)) {
    const bool is_unsigned = std::holds_alternative<std::uint64_t*>(setting.value);
    std::uint64_t natural = 0;
    std::int64_t integer = 0;
    const auto [stop, status] = is_unsigned ? std::from_chars(text.data(), end, natural) : std::from_chars(text.data(), end, integer);
    const bool good = status == std::errc() && stop == end;
    return !good ? std::numeric_limits<double>::quiet_NaN() : is_unsigned ? static_cast<double>(natural) : static_cast<double>(integer);
  }
  char* stop = nullptr;
  const double value = std::strtod(text.c_str(), &stop);
  return stop == end && !text.empty() && std::isfinite(value) ? value : std::numeric_limits<double>::quiet_NaN();
}

bool satisfies(const Check& check, double value) {
  return (check.without_least ? value > check.least : value >= check.least) &&
         (check.without_most ? value < check.most : value <= check.most);
}

}  // namespace

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

std::string to_string(const CodecAt& at) { return fmt::format("{}:{}={}", at.cut, at.forward ? "forward" : "backward", at.spec); }

std::string Setting::key() const {
  std::string key = (turned_off ? "no-" : "") + std::string(name);
  std::replace(key.begin(), key.end(), '_', '-');
  return key;
}

std::string Setting::flag() const { return "--" + key(); }

std::string Setting::text() const {
  return std::visit(
      [](const auto* at) -> std::string {
        using T = std::remove_cvref_t<decltype(*at)>;
        if constexpr (IsList<T>::value) {
          return fmt::format("{}", fmt::join(texts_of_list(*at), ","));
        } else {
          return text_of(*at);
        }
      },
      value);
}

std::string Setting::expected() const {
  if (!check.choices.empty()) return fmt::format("{}", fmt::join(check.choices, ", "));
  const std::string kind = is_whole(*this) ? "a whole number" : is_number(*this) ? "a number" : "";
  const bool bounded_below = std::isfinite(check.least);
  if (bounded_below && std::isfinite(check.most)) {
    return fmt::format("{} from {} to {}{}", kind, check.least, check.without_most ? "below " : "", check.most);
  }
  if (bounded_below) return fmt::format("{} {} {}", kind, check.without_least ? "above" : "of at least", check.least);
  return kind;
}

std::string Setting::complaint(const std::string& text) const {
  const bool chosen = check.choices.empty() || std::find(check.choices.begin(), check.choices.end(), text) != check.choices.end();
  const bool good = is_number(*this) ? satisfies(check, number_in(*this, text)) : chosen;
  return good ? "" : fmt::format("expected {}, got {}", expected(), text);
}

std::map<std::string, std::string> texts_of(const std::vector<Setting>& settings, std::initializer_list<Scope> scopes) {
  std::map<std::string, std::string> texts;
  for (const Setting& setting : settings) {
    if (has_scope(setting, scopes)) texts.emplace(setting.name, setting.text());
  }
  return texts;
}

json to_json(const std::vector<Setting>& settings, std::initializer_list<Scope> scopes) {
  json object = json::object();
  for (const Setting& setting : settings) {
    if (!has_scope(setting, scopes)) continue;
    std::visit([&](const auto* value) { object[std::string(setting.name)] = json_of_value(*value); }, setting.value);
  }
  return object;
}

void set_from_json(const std::vector<Setting>& settings, std::initializer_list<Scope> scopes, const json& object) {
  for (const Setting& setting : settings) {
    if (!has_scope(setting, scopes)) continue;
    const auto found = object.find(setting.name);
    if (found == object.end()) refuse(setting, "is missing");
    std::visit([&](auto* value) { set_value(setting, *value, *found); }, setting.value);
  }
}

std::string to_toml(const std::vector<Setting>& settings) {
  std::string lines;
  for (const Setting& setting : settings) {
    std::string value = std::visit([](const auto* at) { return toml_of(*at); }, setting.value);
    if (setting.turned_off) value = text_of(value != "true");
    if (!value.empty()) lines += fmt::format("{} = {}\n", setting.key(), value);
  }
  return lines;
}

}  // namespace epipe::train
