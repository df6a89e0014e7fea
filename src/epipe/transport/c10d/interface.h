#pragma once

#include <string>

namespace epipe::transport {

// The address of this machine from which `host` is reached: 127.0.0.1 for the machine itself. Throws std::runtime_error.
std::string address_towards(const std::string& host);

}  // namespace epipe::transport
