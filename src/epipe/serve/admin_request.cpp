#include "epipe/serve/admin_request.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "epipe/base/bounded_json.h"
#include "epipe/base/printable.h"

namespace epipe::serve {
namespace {

using nlohmann::json;

constexpr std::size_t kLeastDigits = 4;
constexpr std::size_t kMostDigits = 32;
constexpr std::size_t kReasonBytes = 200;
constexpr double kLongestDrain = 1e9;
constexpr JsonLimits kLimits{.depth = 2, .values = 16, .allocated = 16};

Error bad_request(std::string text) { return {ErrorCode::kBadMessage, std::move(text)}; }

bool has_only(const json& object, std::initializer_list<std::string_view> names) {
  for (const auto& [name, value] : object.items()) {
    if (std::find(names.begin(), names.end(), name) == names.end()) return false;
  }
  return true;
}

std::string member_text(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Result<AdminRequest> parse_drain(const json& object) {
  AdminRequest request{.kind = AdminRequest::Kind::kDrain};
  const auto seconds = object.find("seconds");
  if (seconds == object.end()) return request;
  if (!seconds->is_number()) return bad_request("expected a number of seconds");
  request.seconds = seconds->get<double>();
  if (!(*request.seconds >= 0 && *request.seconds <= kLongestDrain)) return bad_request("expected seconds from 0 to 1e9");
  return request;
}

Result<AdminRequest> parse_end(const json& object) {
  AdminRequest request{
      .kind = AdminRequest::Kind::kEnd, .session = member_text(object, "session"), .reason = member_text(object, "reason")};
  const std::string& id = request.session;
  if (id.size() < kLeastDigits || id.size() > kMostDigits || id.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return bad_request("expected the id of a session, or at least 4 of its first digits, in lower case; \"epipe serve status\" shows them");
  }
  if (request.reason.size() > kReasonBytes || printable(request.reason) != request.reason) {
    return bad_request("expected a reason of at most 200 printable ASCII letters");
  }
  return request;
}

}  // namespace

Result<AdminRequest> parse_admin_request(std::string_view line) {
  if (line.size() > kMaxAdminBytes) return bad_request("the request is too long");
  const auto parsed = parse_bounded_json(line, kLimits);
  if (!parsed || !parsed.value().is_object()) return bad_request("expected a line with a JSON object");
  const json& object = parsed.value();
  const std::string what = member_text(object, "do");
  if (what == "status" && has_only(object, {"do"})) return AdminRequest{};
  if (what == "drain" && has_only(object, {"do", "seconds"})) return parse_drain(object);
  if (what == "end" && has_only(object, {"do", "session", "reason"})) return parse_end(object);
  return bad_request("expected \"do\": status, drain or end, with the members of each and no others");
}

std::string to_line(const AdminRequest& request) {
  json object;
  switch (request.kind) {
    case AdminRequest::Kind::kStatus: object["do"] = "status"; break;
    case AdminRequest::Kind::kDrain:
      object["do"] = "drain";
      if (request.seconds) object["seconds"] = *request.seconds;
      break;
    case AdminRequest::Kind::kEnd: object = {{"do", "end"}, {"session", request.session}, {"reason", request.reason}}; break;
  }
  return object.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
}

}  // namespace epipe::serve
