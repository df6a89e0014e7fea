#include "epipe/cli/stop_signal.h"

#include <csignal>

namespace epipe::cli {
namespace {

std::atomic<bool> g_stop = false;  // set by the signal handler; the only state it may touch

void on_stop_signal(int) { g_stop = true; }

std::atomic<bool> g_renew = false;  // likewise

void on_hangup(int) { g_renew = true; }

}  // namespace

const std::atomic<bool>& stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return g_stop;
}

std::atomic<bool>& renew_on_hangup() {
  struct sigaction action {};
  action.sa_handler = on_hangup;
  action.sa_flags = SA_RESTART;
  sigaction(SIGHUP, &action, nullptr);
  return g_renew;
}

}  // namespace epipe::cli
