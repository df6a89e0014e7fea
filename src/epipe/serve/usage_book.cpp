#include "epipe/serve/usage_book.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "epipe/base/bounded_json.h"
#include "epipe/base/file.h"
#include "epipe/serve/audit_log.h"
#include "epipe/serve/log.h"

namespace epipe::serve {
namespace {

using nlohmann::json;

constexpr double kSaveSeconds = 30;
constexpr std::int64_t kSecondsOfDay = 24 * 3600;
constexpr std::size_t kMostNames = 2000;
constexpr std::uint64_t kMaxBookBytes = 1 << 20;
constexpr double kMostNumber = 1e18;

std::int64_t day_number(std::time_t time) { return static_cast<std::int64_t>(time) / kSecondsOfDay; }

bool is_usage(const json& entry) {
  return entry.is_array() && entry.size() == 2 && entry[0].is_number_unsigned() && entry[1].is_number() && entry[1].get<double>() >= 0 &&
         entry[1].get<double>() <= kMostNumber;
}

Result<UsagePage> read_usage(const std::string& path) {
  const auto bytes = read_file(path, kMaxBookBytes);
  if (!bytes) return bytes.error();
  return parse_usage({reinterpret_cast<const char*>(bytes.value().data()), bytes.value().size()});
}

}  // namespace

Result<UsagePage> parse_usage(std::string_view text) {
  const Error wrong = bad_file("it is not one that a server wrote");
  const auto parsed = parse_bounded_json(text, {.depth = 4, .values = 8 * kMostNames, .allocated = 8 * kMostNames});
  if (!parsed || !parsed.value().is_object()) return wrong;
  const json& page = parsed.value();
  if (!page.contains("day") || !page["day"].is_number_unsigned() || !page.contains("names") || !page["names"].is_object()) return wrong;
  UsagePage read{.day = page["day"].get<std::int64_t>()};
  for (const auto& [name, entry] : page["names"].items()) {
    if (!is_client_name(name) || !is_usage(entry)) return wrong;
    read.names[name] = {entry[0].get<std::uint64_t>(), entry[1].get<double>()};
  }
  return read.names.size() > kMostNames ? Result<UsagePage>(wrong) : read;
}

UsageBook::UsageBook(std::string path, Now now) : path_(std::move(path)), now_(std::move(now)), day_(day_number(now_())) {
  auto read = read_usage(path_);
  if (!read && read.error().code != ErrorCode::kIo) log("{}: {}; what was used today is counted from 0", path_, read.error().message);
  if (read && read.value().day == day_) names_ = std::move(read.value().names);
}

void UsageBook::turn_page() {
  if (const std::int64_t today = day_number(now_()); today != std::exchange(day_, today)) {
    names_.clear();
    changed_ = true;
  }
}

void UsageBook::add(const std::string& name, const Usage& more) {
  turn_page();
  if (more.bytes == 0 && more.seconds <= 0) return;
  if (!names_.contains(name) && names_.size() >= kMostNames) return;
  Usage& used = names_[name];
  used.bytes += more.bytes;
  used.seconds += more.seconds;
  changed_ = true;
}

Usage UsageBook::today(const std::string& name) {
  turn_page();
  const auto found = names_.find(name);
  return found == names_.end() ? Usage{} : found->second;
}

std::time_t UsageBook::next_day() const { return static_cast<std::time_t>((day_number(now_()) + 1) * kSecondsOfDay); }

void UsageBook::save(bool now) {
  if (!changed_ || (!now && since_saved_.seconds() < kSaveSeconds)) return;
  since_saved_ = {};
  json page = {{"day", day_}, {"names", json::object()}};
  for (const auto& [name, used] : names_) page["names"][name] = {used.bytes, used.seconds};
  const std::string text = page.dump() + "\n";
  const auto written = write_private_file(path_, {std::as_bytes(std::span(text))});
  changed_ = !written;
  if (!written && !std::exchange(failed_, true)) log("cannot keep what names have used: {}; tried again", written.error().message);
  if (written) failed_ = false;
}

std::string quota_spent(const Client& client, const Usage& used, std::time_t again) {
  const std::string when = utc_text(again);
  if (client.bytes_per_day > 0 && used.bytes >= client.bytes_per_day) {
    return fmt::format("{} has sent and received its {:.3g} GB of today on this server; sessions can go on from {}", client.name,
                       static_cast<double>(client.bytes_per_day) / 1e9, when);
  }
  if (client.seconds_per_day > 0 && used.seconds >= client.seconds_per_day) {
    return fmt::format("{} has used its {:.3g} device seconds of today on this server; sessions can go on from {}", client.name,
                       client.seconds_per_day, when);
  }
  return {};
}

}  // namespace epipe::serve
