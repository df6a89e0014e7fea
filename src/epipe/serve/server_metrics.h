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

// How a session ended.
enum class SessionEnd : std::uint8_t {
  kLeft,    // its run ended, or its client left it
  kKilled,  // by the server: over a limit, or no answer
  kFailed,  // by itself: a crash, or the kernel
};

// The counters of a server. Any thread.
class ServerMetrics {
 public:
  // Bytes that passed between clients and sessions, as seen by the server itself.
  void relayed(bool from_client, std::size_t bytes) { relayed_[from_client ? 0 : 1] += bytes; }
  void refused(transport::Refusal why);
  void started();
  void reconnected();  // a client came back to its session
  void ended(SessionEnd how, const session::StepTotals& totals, std::uint64_t rejected_reports);

  // `running`: the totals of running sessions so far.
  void show(monitor::MetricPage& page, const session::StepTotals& running, std::uint64_t rejected_reports) const;

 private:
  std::array<std::atomic<std::uint64_t>, 2> relayed_{};
  mutable std::mutex mutex_;  // guards the members below
  std::map<transport::Refusal, std::uint64_t> refusals_;
  std::map<SessionEnd, std::uint64_t> ends_;
  std::uint64_t started_ = 0;
  std::uint64_t reconnected_ = 0;
  std::uint64_t rejected_ = 0;
  session::StepTotals totals_;  // of the sessions that have ended
};

// Totals by cut and direction, and by worker; without `by_worker`, for all workers together.
void show_totals(monitor::MetricPage& page, const session::StepTotals& totals, bool by_worker);

}  // namespace epipe::serve
