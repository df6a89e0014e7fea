#include "epipe/transport/grpc/part.h"

#include <grpcpp/grpcpp.h>

namespace epipe::transport {

Part grpc_part() { return {"gRPC", true, ::grpc::Version()}; }

}  // namespace epipe::transport
