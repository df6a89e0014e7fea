#include "epipe/cli/train_metrics.h"

#include <fmt/format.h>

#include <chrono>

#include "epipe/cli/build_labels.h"
#include "epipe/cli/command.h"
#include "epipe/monitor/metric_page.h"
#include "epipe/serve/server_metrics.h"

namespace epipe::cli {
namespace {

using monitor::MetricPage;

double unix_seconds() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// The derived metrics of a step: bits per value in every step, the error if it was measured. Prometheus computes rates itself.
void show_derived(MetricPage& page, const std::vector<boundary::Traffic>& cuts, const char* direction, std::string_view wanted) {
  for (std::size_t j = 0; j < cuts.size(); ++j) {
    cuts[j].each_derived([&](const Metric& metric, double value) {
      if (metric.name == wanted) page.declared("epipe_", metric, value, {{"cut", fmt::to_string(j)}, {"direction", direction}});
    });
  }
}

}  // namespace

void TrainMetrics::on_step(const train::Progress& progress) {
  {
    const std::lock_guard lock(mutex_);
    progress_ = progress;
    progress_.last = nullptr;
    ++totals_.steps;
    if (progress.last != nullptr) {
      const pipeline::StepResult& step = *progress.last;
      totals_.add(step);
      loss_ = step.loss;
      skipped_ += step.non_finite ? 1 : 0;
      last_forward_ = step.forward;
      last_backward_ = step.backward;
      if (progress.error_measured) {
        measured_forward_ = step.forward;
        measured_backward_ = step.backward;
      }
    }
  }
  inner_.on_step(progress);
}

void TrainMetrics::on_epoch(const train::EpochResult& epoch) {
  {
    const std::lock_guard lock(mutex_);
    epoch_ = std::make_unique<train::EpochResult>(epoch);
  }
  inner_.on_epoch(epoch);
}

void TrainMetrics::on_event(train::RunEvent event) {
  {
    const std::lock_guard lock(mutex_);
    switch (event) {
      case train::RunEvent::kConnectionLost:
        ++lost_;
        away_ = true;
        break;
      case train::RunEvent::kConnectedAgain:
        ++reconnects_;
        away_ = false;
        break;
      case train::RunEvent::kCheckpointSaved:
        ++totals_.checkpoints;
        saved_at_ = unix_seconds();
        break;
    }
  }
  inner_.on_event(event);
}

void TrainMetrics::on_audit(const train::AuditRecord& audit) {
  {
    const std::lock_guard lock(mutex_);
    pipeline::StepResult took = audit.took;
    took.samples = 0;  // counted in the step
    totals_.add(took);
    ++audits_;
    if (audit.valid) harm_ = audit.harm;
  }
  inner_.on_audit(audit);
}

void TrainMetrics::on_rate_change(const train::RateChange& change) {
  {
    const std::lock_guard lock(mutex_);
    ++rate_changes_;
    if (change.link) link_ = *change.link;
  }
  inner_.on_rate_change(change);
}

std::string TrainMetrics::text() const {
  MetricPage page;
  monitor::add_process(page, build_labels());
  const std::lock_guard lock(mutex_);
  page.counter("epipe_steps_total", "committed steps since the process began", static_cast<double>(totals_.steps));
  page.counter("epipe_steps_skipped_total", "of them, skipped by loss scaling", static_cast<double>(skipped_));
  page.counter("epipe_samples_total", "samples of these steps", static_cast<double>(totals_.samples));
  page.gauge("epipe_step", "steps of the run that are done, by earlier processes as well", static_cast<double>(progress_.step));
  page.gauge("epipe_steps_planned", "steps of the whole run", static_cast<double>(progress_.total_steps));
  page.gauge("epipe_epoch", "epoch under way, counted from 0", static_cast<double>(progress_.epoch));
  page.gauge("epipe_loss", "loss of the last step", loss_);
  page.gauge("epipe_epoch_loss", "mean over the steps of the epoch so far", progress_.loss);
  page.gauge("epipe_epoch_accuracy_ratio", "mean over the steps of the epoch so far", progress_.accuracy);
  page.gauge("epipe_learning_rate", "of the last step", progress_.lr);
  if (epoch_) {
    page.gauge("epipe_validation_loss", "after the last epoch", epoch_->val_loss);
    page.gauge("epipe_validation_accuracy_ratio", "after the last epoch", epoch_->val_accuracy);
  }
  page.counter("epipe_connections_lost_total", "links to servers that were lost while training", static_cast<double>(lost_));
  page.counter("epipe_reconnects_total", "links to servers that were made again", static_cast<double>(reconnects_));
  page.gauge("epipe_connected", "0 while a lost connection is being made again", away_ ? 0 : 1);
  page.counter("epipe_checkpoints_total", "checkpoints that were saved", static_cast<double>(totals_.checkpoints));
  page.gauge("epipe_checkpoint_timestamp_seconds",
             "when the newest checkpoint of this process was saved, in seconds since 1970; 0: not yet", saved_at_);
  if (audits_ > 0) {
    page.counter("epipe_audits_total", "audits of what coding does to the gradients", static_cast<double>(audits_));
    page.gauge("epipe_harm_ratio", "the error that coding adds to a batch's gradient, as a share of it, by the last audit", harm_);
  }
  if (rate_changes_ > 0) {
    page.counter("epipe_rate_changes_total", "choices of bits for the link (--follow-link)", static_cast<double>(rate_changes_));
    page.gauge("epipe_link_up_bytes_per_second", "what the last one was made for, to the server", link_.up);
    page.gauge("epipe_link_down_bytes_per_second", "and from it", link_.down);
  }
  serve::show_totals(page, totals_, true);
  show_derived(page, last_forward_, "forward", "bits_per_value");
  show_derived(page, last_backward_, "backward", "bits_per_value");
  show_derived(page, measured_forward_, "forward", "rel_error");
  show_derived(page, measured_backward_, "backward", "rel_error");
  return page.text();
}

std::unique_ptr<monitor::HttpServer> serve_metrics(const std::string& address, const TrainMetrics& metrics) {
  if (address.empty()) return nullptr;
  monitor::HttpConfig http;
  http.address = address;
  http.pages["/metrics"] = [&metrics] {
    return monitor::Response{.type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics.text()};
  };
  http.pages["/healthz"] = [] { return monitor::Response{.body = "training\n"}; };
  try {
    (void)metrics.text();  // a build without them fails here
    auto server = std::make_unique<monitor::HttpServer>(std::move(http));
    fmt::print(stderr, "metrics at {}/metrics{}\n", server->url(),
               server->open_to_others() ? ", for everybody who reaches this machine" : "");
    return server;
  } catch (const std::invalid_argument& error) {
    throw UsageError(fmt::format("--metrics: {}", error.what()));
  } catch (const std::runtime_error& error) {
    throw Failure(fmt::format("--metrics: {}", error.what()));
  }
}

}  // namespace epipe::cli
