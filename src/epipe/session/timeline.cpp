#include "epipe/session/timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "epipe/base/printable.h"

namespace epipe::session {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxName = 32;
constexpr std::array<std::string_view, 7> kCategories = {"forward", "backward", "wait", "encode", "decode", "send", "all_reduce"};

// The literal, which lives as long as the program.
std::string_view category_of(std::string_view text) {
  const auto* const found = std::find(kCategories.begin(), kCategories.end(), text);
  return found == kCategories.end() ? "other" : *found;
}

std::optional<Tracer::Event> event_from_json(const json& fields, int worker, std::size_t cuts, double offset) {
  if (!fields.is_array() || fields.size() != 6 || !fields[1].is_string() || !fields[2].is_string()) return std::nullopt;
  if (!fields[0].is_number_integer() || !fields[3].is_number() || !fields[4].is_number() || !fields[5].is_number_integer())
    return std::nullopt;
  Tracer::Event event;
  event.track = fields[0].get<int>();
  event.category = category_of(fields[1].get<std::string>());
  event.name = printable(fields[2].get<std::string>().substr(0, kMaxName));
  event.begin = fields[3].get<double>() + offset;
  event.end = fields[4].get<double>() + offset;
  event.step = fields[5].get<std::uint64_t>();
  const bool known = event.track == worker || (event.track >= 100 && static_cast<std::size_t>(event.track) < 100 + 4 * cuts);
  const bool timed = std::isfinite(event.begin) && std::isfinite(event.end) && event.begin >= 0 && event.end >= event.begin;
  return known && timed ? std::optional(std::move(event)) : std::nullopt;
}

}  // namespace

json timeline_json(const Tracer& tracer) {
  json events = json::array();
  for (const auto& e : tracer.events()) events.push_back({e.track, e.category, e.name, e.begin, e.end, e.step});
  return events;
}

std::vector<Tracer::Event> timeline_from_json(const json& events, int worker, std::size_t cuts, double offset) {
  std::vector<Tracer::Event> all;
  if (!events.is_array()) return all;
  for (std::size_t i = 0; i < std::min(events.size(), kParticipantEvents); ++i) {
    if (auto event = event_from_json(events[i], worker, cuts, offset)) all.push_back(std::move(*event));
  }
  return all;
}

}  // namespace epipe::session
