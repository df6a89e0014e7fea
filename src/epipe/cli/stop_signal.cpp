#include "epipe/cli/stop_signal.h"

#include <csignal>

namespace epipe::cli {
namespace {

std::atomic<bool> g_stop = false;  // set by the signal handler; the only state it may touch

void on_stop_signal(int) { g_stop = true; }

}  // namespace

const std::atomic<bool>& stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return g_stop;
}

}  // namespace epipe::cli
