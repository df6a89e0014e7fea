#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "epipe/base/result.h"

namespace epipe::transport {

// Creates the files for a first try of TLS in a folder (created if missing): ca.pem, ca.key; server.pem, server.key for localhost,
// 127.0.0.1, ::1, this machine's name and `names` (host names or addresses); client.pem, client.key; token (one line). All files are
// readable by their owner only. Overwrites nothing.
Result<void> init_tls(const std::string& folder, const std::vector<std::string>& names);

// When the first certificate of a PEM text expires, in seconds since 1970.
Result<std::int64_t> certificate_expiry(const std::string& pem);

}  // namespace epipe::transport
