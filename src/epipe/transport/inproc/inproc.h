#pragma once

#include <cstddef>
#include <memory>

#include "epipe/transport/link.h"

namespace epipe::transport {

// A link between two threads of this process that holds up to `capacity` frames. Both ends use the same object.
std::unique_ptr<Link> make_inproc_link(std::size_t capacity);

}  // namespace epipe::transport
