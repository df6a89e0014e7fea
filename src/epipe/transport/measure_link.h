#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "epipe/transport/link.h"

namespace epipe::transport {

// The speed of a link for messages of one size.
struct LinkSpeed {
  std::size_t bytes = 0;
  int messages = 0;
  double round_trip_seconds = 0;  // median: one message there, an empty one back
  double send_MBps = 0;           // 10^6 bytes per second, for back-to-back messages to the peer
  double recv_MBps = 0;           // and from it
  double cpu_seconds = 0;         // of this process for one of many messages, the mean of sending and receiving
  double lone_cpu_seconds = 0;    // and for one of a round trip: threads wake up for each
};

inline constexpr std::size_t kMaxMeasuredBytes = std::size_t{1} << 26;

// Serves one measuring peer until it closes the link or `timeout` passes without a request.
void serve_measurement(Link& link, Timeout timeout);

// Measures against a peer in serve_measurement(); each size takes about three times `seconds`. Verifies the echoed bytes before it times
// anything. Throws ConnectionLost, TimedOut, or std::runtime_error if they differ.
std::vector<LinkSpeed> measure_link(Link& link, const std::vector<std::size_t>& sizes, double seconds, Timeout timeout);

}  // namespace epipe::transport
