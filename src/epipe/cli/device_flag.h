#pragma once

#include <string>
#include <string_view>

namespace epipe::cli {

// Throws UsageError unless the device is cpu, cuda or cuda:N.
void check_device(std::string_view flag, const std::string& device);
// The same, and throws if the device does not exist.
void check_device_exists(std::string_view flag, const std::string& device);

}  // namespace epipe::cli
