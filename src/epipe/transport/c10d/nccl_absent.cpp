#include <stdexcept>

#include "epipe/transport/c10d/backend.h"

namespace epipe::transport {

std::unique_ptr<Group> make_nccl_group(const GroupConfig&, Store, std::shared_ptr<StoreKeyValues>) {
  throw std::runtime_error(
      "this epipe was built without nccl: configure with EPIPE_NCCL=ON where CUDA, NCCL and a CUDA LibTorch are, then rebuild");
}

}  // namespace epipe::transport
