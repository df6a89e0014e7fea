#pragma once

#include <string>
#include <string_view>

#include "epipe/base/result.h"

namespace epipe::monitor {

inline constexpr std::size_t kMaxRequestBytes = 8192;

// The parsed part of a request; the rest is ignored.
struct HttpRequest {
  std::string method;
  std::string path;  // without query; as sent, not decoded
  std::string host;  // the Host header, or empty
};

// Reads the head of an HTTP/1.x request, up to and with its empty line. Errors are kBadMessage and do not quote the text.
Result<HttpRequest> parse_http_request(std::string_view head);

}  // namespace epipe::monitor
