#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "epipe/transport/link.h"

namespace epipe::transport {

// The two ends of a link between two threads of this process; each direction holds up to `capacity` messages. Closing either end closes
// both, and both then throw Closed.
std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> make_inproc_link(std::size_t capacity);

}  // namespace epipe::transport
