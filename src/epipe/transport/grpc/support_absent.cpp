#include "epipe/transport/grpc/support.h"

namespace epipe::transport {

Part grpc_part() { return {"gRPC", false, "not in this build: install libgrpc++-dev and protobuf-compiler-grpc, then rebuild"}; }

}  // namespace epipe::transport
