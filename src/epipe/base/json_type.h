#pragma once

#include <concepts>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace epipe {

template <typename T>
struct IsList : std::false_type {};
template <typename T>
struct IsList<std::vector<T>> : std::true_type {};
template <typename T>
struct IsMap : std::false_type {};
template <typename T>
struct IsMap<std::map<std::string, T>> : std::true_type {};

// Whether the value really is a T, integral and in range if T is: json.get<T>() also converts true, 2.7, and numbers too large for T.
template <typename T>
bool holds(const nlohmann::json& json) {
  if constexpr (std::same_as<T, bool>) {
    return json.is_boolean();
  } else if constexpr (std::integral<T>) {
    if (json.is_number_unsigned()) return std::in_range<T>(json.get<std::uint64_t>());
    return json.is_number_integer() && std::in_range<T>(json.get<std::int64_t>());
  } else if constexpr (std::floating_point<T>) {
    return json.is_number();
  } else if constexpr (std::same_as<T, std::string>) {
    return json.is_string();
  } else if constexpr (IsList<T>::value) {
    if (!json.is_array()) return false;
    for (const auto& entry : json) {
      if (!holds<typename T::value_type>(entry)) return false;
    }
    return true;
  } else {
    static_assert(IsMap<T>::value || std::same_as<T, nlohmann::json>, "say what this type looks like");
    if constexpr (IsMap<T>::value) {
      if (!json.is_object()) return false;
      for (const auto& entry : json) {
        if (!holds<typename T::mapped_type>(entry)) return false;
      }
    }
    return true;
  }
}

}  // namespace epipe
