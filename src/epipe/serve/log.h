#pragma once

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include "epipe/base/printable.h"

namespace epipe::serve {

// Writes one line with the time to stderr, printable and bounded even if it contains a client's text. Never pass tokens or tickets. Errors
// in writing are ignored.
template <typename... Args>
void log(fmt::format_string<Args...> format, Args&&... args) {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const std::string line =
      fmt::format("{:%Y-%m-%d %H:%M:%S} {}\n", fmt::gmtime(now), printable(fmt::format(format, std::forward<Args>(args)...)));
  std::fputs(line.c_str(), stderr);
}

}  // namespace epipe::serve
