#pragma once

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <string>
#include <utility>

namespace epipe::serve {

// One line on stderr with the time. Never tokens or tickets.
template <typename... Args>
void log(fmt::format_string<Args...> format, Args&&... args) {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  fmt::print(stderr, "{:%Y-%m-%d %H:%M:%S} {}\n", fmt::gmtime(now), fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace epipe::serve
