#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "epipe/base/result.h"

// An operator's request to a running server: one line of JSON, answered by one line of JSON.
//
//   {"do": "status"}
//   {"do": "drain", "seconds": 60}                  seconds: how long clients have; default: as configured at the server's start
//   {"do": "end", "session": "1f2e3d4c", "reason": "the machine is needed"}
//
// The answer has "error", or the requested data.
namespace epipe::serve {

inline constexpr std::size_t kMaxAdminBytes = 4096;

struct AdminRequest {
  enum class Kind { kStatus, kDrain, kEnd };
  Kind kind = Kind::kStatus;
  std::optional<double> seconds{};  // of a drain
  std::string session{};            // for kEnd: the first digits of its id, at least 4
  std::string reason{};             // sent to its client; printable, at most 200 bytes
};

// For untrusted text. The errors are for the operator.
Result<AdminRequest> parse_admin_request(std::string_view line);
std::string to_line(const AdminRequest& request);  // with its line feed

}  // namespace epipe::serve
