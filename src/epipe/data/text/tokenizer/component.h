#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace epipe::data {

// An error in a tokenizer.json, or a text it cannot handle. Tokenizer catches it and returns a Result.
class BadTokenizer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One part of a tokenizer.json, and its path in the file ("pre_tokenizer.pretokenizers[1]"). Every getter throws BadTokenizer with that
// path if the value is not of the expected kind.
class Component {
 public:
  Component(const nlohmann::json& value, std::string where) : value_(&value), where_(std::move(where)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& where() const { return where_; }
  // Null means a missing component.
  bool absent() const { return value_->is_null(); }
  bool has(const char* name) const { return value_->is_object() && value_->contains(name) && !(*value_)[name].is_null(); }

  Component at(const char* name) const;  // a member; null if there is none
  std::vector<Component> list() const;   // the entries of a list
  std::vector<Component> list(const char* name) const { return at(name).list(); }

  std::string type() const { return at("type").text(); }
  std::string text() const;
  std::string text(const char* name, std::string_view otherwise) const;
  bool flag(const char* name, bool otherwise) const;
  // A number from 0 to `most`.
  std::int64_t number(std::int64_t most) const;

  [[noreturn]] void fail(std::string_view message) const;
  // For a type that epipe does not have.
  [[noreturn]] void unsupported(std::string_view known) const;

 private:
  const nlohmann::json* value_;
  std::string where_;
};

}  // namespace epipe::data
