#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace epipe::report {

// Reads fields of an untrusted JSON object. A missing or null field is NaN, 0 or empty; a field of the wrong kind is remembered as the
// problem.
class Fields {
 public:
  explicit Fields(const nlohmann::json& object);

  double number(std::string_view key);
  std::int64_t count(std::string_view key);  // a whole number from 0 on
  std::string text(std::string_view key);
  const nlohmann::json& list(std::string_view key);

  // The first problem, or empty.
  const std::string& problem() const { return problem_; }

 private:
  const nlohmann::json& get(std::string_view key);
  void complain(std::string_view key, std::string_view expected, const nlohmann::json& found);

  const nlohmann::json& object_;
  std::string problem_;
};

}  // namespace epipe::report
