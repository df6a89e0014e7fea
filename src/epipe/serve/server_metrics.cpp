#include "epipe/serve/server_metrics.h"

#include <fmt/format.h>

#include <utility>

namespace epipe::serve {
namespace {

using monitor::MetricPage;
using transport::Refusal;

// Not kUntrusted: TLS that fails never becomes a request, and only the connector knows why.
constexpr std::array<std::pair<Refusal, const char*>, 6> kRefusals = {{{Refusal::kUnauthenticated, "unauthenticated"},
                                                                       {Refusal::kVersion, "version"},
                                                                       {Refusal::kFull, "full"},
                                                                       {Refusal::kNotFound, "not_found"},
                                                                       {Refusal::kEnded, "ended"},
                                                                       {Refusal::kOther, "other"}}};
constexpr std::array<std::pair<SessionEnd, const char*>, 3> kEnds = {
    {{SessionEnd::kLeft, "left"}, {SessionEnd::kKilled, "killed"}, {SessionEnd::kFailed, "failed"}}};

template <typename Map>
double count_of(const Map& counts, const typename Map::key_type& key) {
  const auto found = counts.find(key);
  return found == counts.end() ? 0 : static_cast<double>(found->second);
}

}  // namespace

void ServerMetrics::refused(Refusal why) {
  const std::lock_guard lock(mutex_);
  ++refusals_[why];
}

void ServerMetrics::started() {
  const std::lock_guard lock(mutex_);
  ++started_;
}

void ServerMetrics::reconnected() {
  const std::lock_guard lock(mutex_);
  ++reconnected_;
}

void ServerMetrics::ended(SessionEnd how, const session::StepTotals& totals, std::uint64_t rejected_reports) {
  const std::lock_guard lock(mutex_);
  ++ends_[how];
  rejected_ += rejected_reports;
  session::StepTotals past = totals;
  past.has_ended();
  totals_.add(past);
}

void ServerMetrics::show(MetricPage& page, const session::StepTotals& running, std::uint64_t rejected_reports) const {
  const std::lock_guard lock(mutex_);
  session::StepTotals all = totals_;
  all.add(running);
  page.counter("epipe_sessions_started_total", "sessions whose process was started", static_cast<double>(started_));
  page.counter("epipe_reconnects_total", "clients that came back to a session that runs, or whose state is kept",
               static_cast<double>(reconnected_));
  for (const auto& [how, name] : kEnds) {
    page.counter("epipe_sessions_ended_total", "sessions that ended: left by their client, killed by the server, failed by themselves",
                 count_of(ends_, how), {{"how", name}});
  }
  for (const auto& [why, name] : kRefusals) {
    page.counter("epipe_refusals_total", "links and connections that were refused", count_of(refusals_, why), {{"reason", name}});
  }
  const char* const relayed = "bytes between clients and sessions, commands and frames, inside TLS";
  page.counter("epipe_relay_bytes_total", relayed, static_cast<double>(relayed_[0]), {{"direction", "received"}});
  page.counter("epipe_relay_bytes_total", relayed, static_cast<double>(relayed_[1]), {{"direction", "sent"}});
  page.counter("epipe_session_steps_total", "steps that sessions committed", static_cast<double>(all.steps));
  page.counter("epipe_session_samples_total", "samples of their steps, repeated ones included", static_cast<double>(all.samples));
  page.counter("epipe_session_checkpoints_total", "checkpoints that sessions saved", static_cast<double>(all.checkpoints));
  page.counter("epipe_session_reports_rejected_total", "reports of sessions that made no sense",
               static_cast<double>(rejected_ + rejected_reports));
  show_totals(page, all, false);
}

void show_totals(MetricPage& page, const session::StepTotals& totals, bool by_worker) {
  const auto show = [&](const std::vector<boundary::Traffic>& cuts, const char* direction) {
    for (std::size_t j = 0; j < cuts.size(); ++j) page.declared("epipe_", cuts[j], {{"cut", fmt::to_string(j)}, {"direction", direction}});
  };
  show(totals.forward, "forward");
  show(totals.backward, "backward");
  pipeline::WorkerTimes together;
  for (std::size_t w = 0; w < totals.workers.size(); ++w) {
    together += totals.workers[w];
    if (by_worker) page.declared("epipe_worker_", totals.workers[w], {{"worker", fmt::to_string(w)}});
  }
  if (!by_worker) page.declared("epipe_worker_", together, {});
}

}  // namespace epipe::serve
