#pragma once

#include <string>

#include "epipe/base/result.h"

namespace epipe::data {

// Fetches an https address into a file with the program curl, which knows the machine's proxies and certificates; its progress goes to
// stderr on a terminal. A failed or interrupted download leaves no file.
Result<void> download(const std::string& url, const std::string& path);

}  // namespace epipe::data
