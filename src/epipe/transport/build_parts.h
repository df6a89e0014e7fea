#pragma once

#include <vector>

#include "epipe/base/build_part.h"

namespace epipe::transport {

// The engines that links can run on, in this build: process groups of a cluster, and streams across a network one does not own.
std::vector<Part> build_parts();

}  // namespace epipe::transport
