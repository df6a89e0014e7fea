#pragma once

#include <atomic>

namespace epipe::cli {

// From now on the first SIGINT or SIGTERM sets the flag, for long work to end in order; a second one kills, as usual.
const std::atomic<bool>& stop_on_signals();

// Set by SIGHUP, over and over; whoever acts on it sets it back.
std::atomic<bool>& renew_on_hangup();

}  // namespace epipe::cli
