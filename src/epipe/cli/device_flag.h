#pragma once

#include <string>
#include <string_view>

namespace epipe::cli {

// Throws UsageError unless the device is cpu, cuda or cuda:N.
void check_device(std::string_view flag, const std::string& device);
// And unless it is there.
void check_device_exists(std::string_view flag, const std::string& device);

}  // namespace epipe::cli
