#include "epipe/base/bounded_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace epipe {
namespace {

using nlohmann::json;

// Builds the value from the parser's events, and stops it at the first limit. The library's own parser with a callback would visit all
// members of the parent at the end of each object, which makes lists of objects quadratic.
class Builder final : public nlohmann::json_sax<json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  json take() { return std::move(root_); }
  const std::string& error() const { return error_; }

  bool null() override { return add(nullptr, 0) != nullptr; }
  bool boolean(bool value) override { return add(value, 0) != nullptr; }
  bool number_integer(number_integer_t value) override { return add(value, 0) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return add(value, 0) != nullptr; }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value, 0) != nullptr; }
  bool string(string_t& value) override { return add(std::move(value), 1) != nullptr; }
  bool binary(binary_t& /*value*/) override { return fail("has binary data"); }

  bool start_object(std::size_t /*size*/) override { return open(json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t /*size*/) override { return open(json::array()); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    if (++allocated_ > limits_.allocated) return too_many();
    const auto [at, is_new] = open_.back()->get_ref<json::object_t&>().emplace(std::move(value), nullptr);
    if (!is_new) return fail("has a key twice");
    member_ = &at->second;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/, const nlohmann::detail::exception& /*reason*/) override {
    return fail(fmt::format("is not valid JSON in UTF-8 at byte {}", position));
  }

 private:
  // Returns the value in its place; null if it exceeds the limits.
  json* add(json value, std::size_t allocations) {
    allocated_ += allocations;
    if (++values_ > limits_.values || allocated_ > limits_.allocated) {
      too_many();
      return nullptr;
    }
    json* place = &root_;
    if (!open_.empty()) {
      json& parent = *open_.back();
      place = parent.is_array() ? &parent.get_ref<json::array_t&>().emplace_back() : member_;
    }
    *place = std::move(value);
    return place;
  }
  // While a list or object is open nothing is added to its parent, so its address is stable.
  bool open(json empty) {
    if (open_.size() == limits_.depth) return fail(fmt::format("is nested deeper than {}", limits_.depth));
    json* const place = add(std::move(empty), 1);
    if (place != nullptr) open_.push_back(place);
    return place != nullptr;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  bool too_many() {
    return fail(fmt::format("has more than {} values, or {} strings, lists, objects and keys", limits_.values, limits_.allocated));
  }
  bool fail(std::string error) {
    if (error_.empty()) error_ = std::move(error);
    return false;
  }

  JsonLimits limits_;
  json root_;
  std::vector<json*> open_;  // lists and objects that are not closed, the innermost last
  json* member_ = nullptr;   // of the innermost object: where the value of the last key goes
  std::size_t values_ = 0;
  std::size_t allocated_ = 0;
  std::string error_;
};

}  // namespace

Result<json> parse_bounded_json(std::string_view text, const JsonLimits& limits) {
  // The parser would take a zero as the end of its input and ignore the rest.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos) {
    return Error{ErrorCode::kBadMessage, fmt::format("is not valid JSON in UTF-8 at byte {}", zero + 1)};
  }
  Builder builder(limits);
  json::sax_parse(text.begin(), text.end(), &builder);
  if (!builder.error().empty()) return Error{ErrorCode::kBadMessage, builder.error()};
  return builder.take();
}

}  // namespace epipe
