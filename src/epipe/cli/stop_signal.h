#pragma once

#include <atomic>

namespace epipe::cli {

// From now on the first SIGINT or SIGTERM sets the flag, so that long work can end cleanly; a second one kills the process, as usual.
const std::atomic<bool>& stop_on_signals();

// Set by every SIGHUP; whoever acts on it resets it.
std::atomic<bool>& renew_on_hangup();

}  // namespace epipe::cli
