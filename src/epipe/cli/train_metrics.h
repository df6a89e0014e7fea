#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "epipe/monitor/http_server.h"
#include "epipe/session/step_totals.h"
#include "epipe/train/trainer.h"

namespace epipe::cli {

// Counts a run's events for /metrics, and forwards them to another observer. The training thread calls on_*, other threads text().
class TrainMetrics final : public train::Observer {
 public:
  // `inner` outlives it.
  explicit TrainMetrics(train::Observer& inner) : inner_(inner) {}

  void on_step(const train::Progress& progress) override;
  void on_epoch(const train::EpochResult& epoch) override;
  void on_note(const std::string& text) override { inner_.on_note(text); }
  void on_event(train::RunEvent event) override;
  void on_audit(const train::AuditRecord& audit) override;
  void on_rate_change(const train::RateChange& change) override;

  std::string text() const;

 private:
  train::Observer& inner_;
  mutable std::mutex mutex_;  // guards the members below
  session::StepTotals totals_;
  train::Progress progress_;
  double loss_ = 0;  // of the last step
  std::uint64_t skipped_ = 0;
  std::vector<boundary::Traffic> last_forward_;  // of the last step
  std::vector<boundary::Traffic> last_backward_;
  std::vector<boundary::Traffic> measured_forward_;  // of the last step that measured the codecs' error
  std::vector<boundary::Traffic> measured_backward_;
  std::unique_ptr<train::EpochResult> epoch_;  // the last that ended
  std::uint64_t lost_ = 0;                     // connections
  std::uint64_t reconnects_ = 0;
  std::uint64_t audits_ = 0;
  double harm_ = 0;  // of the last one
  std::uint64_t rate_changes_ = 0;
  session::LinkMeasurement link_;  // of the last one
  bool away_ = false;              // a connection is lost
  double saved_at_ = 0;            // seconds since 1970; 0: not yet
};

// Serves them at HOST:PORT for as long as it lives; null for "". Throws UsageError or Failure.
std::unique_ptr<monitor::HttpServer> serve_metrics(const std::string& address, const TrainMetrics& metrics);

}  // namespace epipe::cli
