#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace epipe::model {

// Reads fields of a config.json; remembers the first invalid one. A null field counts as missing.
class ConfigFields {
 public:
  static constexpr std::int64_t kMaxSize = 1 << 20;

  explicit ConfigFields(const nlohmann::json& object) : object_(object) {}

  void size(const char* name, std::int64_t& value, std::int64_t least = 1, std::int64_t most = kMaxSize) {
    const auto* const field = find(name);
    if (field == nullptr) return;
    if (field->is_number_integer() && *field >= least && *field <= most) {
      value = field->get<std::int64_t>();
    } else {
      complain(fmt::format("expected {} from {} to {}, got {}", name, least, most, shown(*field)));
    }
  }
  void number(const char* name, double& value, double most) {
    const auto* const field = find(name);
    if (field == nullptr) return;
    if (field->is_number() && *field >= 0.0 && *field < most) {
      value = field->get<double>();
    } else {
      complain(fmt::format("expected {} from 0 to below {}, got {}", name, most, shown(*field)));
    }
  }
  void flag(const char* name, bool& value) {
    const auto* const field = find(name);
    if (field == nullptr) return;
    if (field->is_boolean()) {
      value = field->get<bool>();
    } else {
      complain(fmt::format("expected {} true or false, got {}", name, shown(*field)));
    }
  }
  // The only supported value; any other is refused rather than ignored.
  template <typename T>
  void only(const char* name, const T& expected) {
    const auto* const field = find(name);
    if (field != nullptr && *field != nlohmann::json(expected)) {
      complain(fmt::format("expected {} {}, got {}", name, nlohmann::json(expected).dump(), shown(*field)));
    }
  }
  void text(const char* name, std::string_view expected) { only(name, std::string(expected)); }
  void complain(std::string what) {
    if (complaint_.empty()) complaint_ = std::move(what);
  }
  const std::string& complaint() const { return complaint_; }
  // Null if it is missing or null.
  const nlohmann::json* find(const char* name) const {
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  static std::string shown(const nlohmann::json& value) {
    return value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 40);
  }

 private:
  const nlohmann::json& object_;
  std::string complaint_;
};

}  // namespace epipe::model
