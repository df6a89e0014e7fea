#include "epipe/transport/c10d/support.h"

#include <gloo/config.h>

#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace epipe::transport {

Part gloo_part() {
  const std::string version =
      std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) + "." + std::to_string(GLOO_VERSION_PATCH);
  return {c10d::GLOO_BACKEND_NAME, true, version};
}

}  // namespace epipe::transport
