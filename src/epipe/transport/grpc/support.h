#pragma once

#include "epipe/base/build_part.h"

namespace epipe::transport {

// gRPC over TLS: client and server across an untrusted network.
Part grpc_part();

}  // namespace epipe::transport
