#include "epipe/data/text/tokenizer/component.h"

#include <fmt/format.h>

#include "epipe/base/printable.h"

namespace epipe::data {
namespace {

constexpr std::size_t kMostShown = 80;

const nlohmann::json& no_value() {
  static const nlohmann::json value;
  return value;
}

std::string shown_json(const nlohmann::json& value) {
  return printable(value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace), kMostShown);
}

}  // namespace

Component Component::at(const char* name) const {
  if (!value_->is_object()) fail(fmt::format("expected an object, got {}", shown_json(*value_)));
  const auto found = value_->find(name);
  return {found == value_->end() ? no_value() : *found, where_.empty() ? name : fmt::format("{}.{}", where_, name)};
}

std::vector<Component> Component::list() const {
  if (!value_->is_array()) fail(fmt::format("expected a list, got {}", shown_json(*value_)));
  std::vector<Component> all;
  for (std::size_t i = 0; i < value_->size(); ++i) all.emplace_back((*value_)[i], fmt::format("{}[{}]", where_, i));
  return all;
}

std::string Component::text() const {
  if (!value_->is_string()) fail(fmt::format("expected text, got {}", shown_json(*value_)));
  return value_->get<std::string>();
}

std::string Component::text(const char* name, std::string_view otherwise) const {
  return has(name) ? at(name).text() : std::string(otherwise);
}

bool Component::flag(const char* name, bool otherwise) const {
  if (!has(name)) return otherwise;
  const Component member = at(name);
  if (!member.value().is_boolean()) member.fail(fmt::format("expected true or false, got {}", shown_json(member.value())));
  return member.value().get<bool>();
}

std::int64_t Component::number(std::int64_t most) const {
  const bool fits = value_->is_number_unsigned() && value_->get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
  if (!fits) fail(fmt::format("expected a number from 0 to {}, got {}", most, shown_json(*value_)));
  return value_->get<std::int64_t>();
}

void Component::fail(std::string_view message) const {
  throw BadTokenizer(where_.empty() ? std::string(message) : fmt::format("{}: {}", where_, message));
}

void Component::unsupported(std::string_view known) const {
  fail(fmt::format("the type {} is not supported; epipe has {}", shown_json(at("type").value()), known));
}

}  // namespace epipe::data
