#pragma once

#include "epipe/base/build_part.h"

namespace epipe::transport {

// gRPC over TLS: client and server across a network one does not own.
Part grpc_part();

}  // namespace epipe::transport
