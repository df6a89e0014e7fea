#include "epipe/report/fields.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace epipe::report {
namespace {

constexpr double kMostCount = 1e15;  // far above any count, and exact as a double
const nlohmann::json kNull;
const nlohmann::json kNone = nlohmann::json::array();

}  // namespace

Fields::Fields(const nlohmann::json& object) : object_(object) {
  if (!object.is_object()) problem_ = fmt::format("expected an object, got {}", object.type_name());
}

const nlohmann::json& Fields::get(std::string_view key) {
  if (!object_.is_object()) return kNull;
  const auto found = object_.find(key);
  return found == object_.end() ? kNull : *found;
}

void Fields::complain(std::string_view key, std::string_view expected, const nlohmann::json& found) {
  if (problem_.empty()) problem_ = fmt::format(R"(expected "{}" to be {}, got {})", key, expected, found.type_name());
}

double Fields::number(std::string_view key) {
  const auto& value = get(key);
  if (value.is_number()) return value.get<double>();
  if (!value.is_null()) complain(key, "a number", value);
  return std::numeric_limits<double>::quiet_NaN();
}

std::int64_t Fields::count(std::string_view key) {
  const auto& value = get(key);
  if (value.is_null()) return 0;
  const double number = value.is_number() ? value.get<double>() : -1;
  if (number >= 0 && number <= kMostCount && number == std::floor(number)) return static_cast<std::int64_t>(number);
  complain(key, "a whole number of at least 0", value);
  return 0;
}

std::string Fields::text(std::string_view key) {
  const auto& value = get(key);
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_null()) complain(key, "text", value);
  return {};
}

const nlohmann::json& Fields::list(std::string_view key) {
  const auto& value = get(key);
  if (value.is_array()) return value;
  if (!value.is_null()) complain(key, "a list", value);
  return kNone;
}

}  // namespace epipe::report
