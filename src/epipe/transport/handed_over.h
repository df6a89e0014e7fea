#pragma once

#include <vector>

namespace epipe::transport {

// Sockets that were opened for this process before it began, as systemd does for a service with a .socket unit: LISTEN_FDS descriptors from
// 3 on, where LISTEN_PID is this process. The variables go and the descriptors stay out of its children, so that none takes them for its
// own. Empty without them. Throws std::runtime_error for a count that is none.
std::vector<int> take_handed_over_sockets();

}  // namespace epipe::transport
