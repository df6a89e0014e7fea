#include "epipe/transport/c10d/support.h"

namespace epipe::transport {

Part gloo_part() { return {"gloo", false, "not in this build: install libgloo-dev, then rebuild"}; }

}  // namespace epipe::transport
