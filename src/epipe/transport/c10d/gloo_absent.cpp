#include <stdexcept>

#include "epipe/transport/c10d/backend.h"

namespace epipe::transport {

std::unique_ptr<Group> make_gloo_group(const GroupConfig&, Store, std::shared_ptr<StoreKeyValues>) {
  throw std::runtime_error("this epipe was built without gloo: install libgloo-dev, then rebuild");
}

}  // namespace epipe::transport
