#pragma once

#include "epipe/base/build_part.h"

namespace epipe::transport {

// c10d process groups over gloo: workers of one cluster, on CPUs.
Part gloo_part();

}  // namespace epipe::transport
