#include "epipe/transport/grpc/support.h"

#include <grpcpp/grpcpp.h>

namespace epipe::transport {

Part grpc_part() { return {"gRPC", true, ::grpc::Version()}; }

}  // namespace epipe::transport
