#pragma once

#include <string>
#include <string_view>

#include "epipe/base/result.h"

namespace epipe::monitor {

inline constexpr std::size_t kMaxRequestBytes = 8192;

// What is asked for. Nothing else of a request is looked at.
struct HttpRequest {
  std::string method;
  std::string path;  // without a query; as it was sent, nothing is decoded
  std::string host;  // the Host header, or empty
};

// Reads the head of an HTTP/1.x request, up to and with its empty line. Errors are kBadMessage and do not quote the text.
Result<HttpRequest> parse_http_request(std::string_view head);

}  // namespace epipe::monitor
