#pragma once

#include "epipe/base/build_part.h"

namespace epipe::transport {

// c10d process groups over gloo: CPU workers of one cluster.
Part gloo_part();

}  // namespace epipe::transport
