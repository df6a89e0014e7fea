#pragma once

#include <vector>

#include "epipe/base/build_part.h"

namespace epipe::transport {

// The transport backends in this build: process groups within a cluster, and streams across an untrusted network.
std::vector<Part> build_parts();

}  // namespace epipe::transport
