#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "epipe/monitor/metric_page.h"
#include "epipe/session/step_totals.h"
#include "epipe/transport/refused.h"

namespace epipe::serve {

// How a session came to its end.
enum class SessionEnd : std::uint8_t {
  kLeft,    // its run ended, or its client left it
  kKilled,  // by the server: a limit, or no answer
  kFailed,  // by itself: a crash, or the kernel
};

// What a server counts. Any thread.
class ServerMetrics {
 public:
  // Bytes that passed between clients and sessions, as the server itself saw them.
  void relayed(bool from_client, std::size_t bytes) { relayed_[from_client ? 0 : 1] += bytes; }
  void refused(transport::Refusal why);
  void started();
  void ended(SessionEnd how, const session::StepTotals& totals, std::uint64_t rejected_reports);

  // With `running`: what the sessions that run have come to so far.
  void show(monitor::MetricPage& page, const session::StepTotals& running, std::uint64_t rejected_reports) const;

 private:
  std::array<std::atomic<std::uint64_t>, 2> relayed_{};
  mutable std::mutex mutex_;  // guards what follows
  std::map<transport::Refusal, std::uint64_t> refusals_;
  std::map<SessionEnd, std::uint64_t> ends_;
  std::uint64_t started_ = 0;
  std::uint64_t rejected_ = 0;
  session::StepTotals totals_;  // of the sessions that have ended
};

// Cuts and directions, and workers: under one label each, or, where `by_worker` is not set, all workers together.
void show_totals(monitor::MetricPage& page, const session::StepTotals& totals, bool by_worker);

}  // namespace epipe::serve
