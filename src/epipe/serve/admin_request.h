#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "epipe/base/result.h"

// What the operator of a server that runs asks of it: a line of JSON, answered by a line of JSON.
//
//   {"do": "status"}
//   {"do": "drain", "seconds": 60}                  seconds: how long clients have; left out: as the server was started with
//   {"do": "end", "session": "1f2e3d4c", "reason": "the machine is needed"}
//
// The answer has "error", or what was asked for.
namespace epipe::serve {

inline constexpr std::size_t kMaxAdminBytes = 4096;

struct AdminRequest {
  enum class Kind { kStatus, kDrain, kEnd };
  Kind kind = Kind::kStatus;
  std::optional<double> seconds{};  // of a drain
  std::string session{};            // to end: the first digits of its id, 4 at least
  std::string reason{};             // told to its client; printable, at most 200 bytes
};

// Trusts nothing. The errors are for the operator.
Result<AdminRequest> parse_admin_request(std::string_view line);
std::string to_line(const AdminRequest& request);  // with its line feed

}  // namespace epipe::serve
