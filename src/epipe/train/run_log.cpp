#include "epipe/train/run_log.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace epipe::train {
namespace {

using pipeline::StepResult;

nlohmann::json json_of(const std::vector<std::pair<std::string, double>>& named) {
  nlohmann::json object;
  for (const auto& [name, value] : named) object[name] = value;
  return object;
}

}  // namespace

void StepSums::add(const StepResult& done, double step_seconds) {
  seconds += step_seconds;
  samples += static_cast<double>(done.samples);
  if (done.non_finite) {
    ++skipped;
  } else {
    loss += done.loss * static_cast<double>(done.terms);
    correct += done.correct;
    scored += static_cast<double>(done.terms);
  }
  for (const auto& traffic : done.forward) wire_bytes += traffic.wire_bytes;
  for (const auto& traffic : done.backward) wire_bytes += traffic.wire_bytes;
  ++steps;
}

void RunLog::begin() {
  in_epoch_ = {};
  in_call_ = {};
}

void RunLog::continue_at(std::uint64_t steps_done) {
  file_.reset();  // the new one writes the same file
  file_ = std::make_unique<MetricsFile>(config_.run_dir + "/metrics.jsonl", steps_done);
}

void RunLog::restart_epoch() {
  in_epoch_ = {};
  audit_.reset();
}

void RunLog::write_audit() {
  if (!audit_) return;
  file_->append(audit_json(*audit_, run_.coordinator->local().pipeline_config().codecs, run_.auto_rates->config()));
  observer_.on_audit(*audit_);
  for (StepSums* const all : {&in_epoch_, &in_call_}) all->wire_bytes += audit_->wire_bytes();
  audit_.reset();
}

void RunLog::step(const DoneStep& done) {
  const double optimizer_seconds = done.updating.seconds();
  const double seconds = done.watch.seconds();
  const StepResult& result = done.result;
  if (const RateChange* const change = run_.rate_record->at(done.step); change != nullptr && change->step == done.step) {
    file_->append(rates_json(*change, done.epoch));
  }
  write_audit();
  StepSums sums;
  for (StepSums* const all : {&sums, &in_epoch_, &in_call_}) all->add(result, seconds);
  nlohmann::json line = {{"kind", "step"},
                         {"epoch", done.epoch},
                         {"step", done.step},
                         {"loss", result.loss},
                         {"accuracy", result.correct / static_cast<double>(std::max<std::int64_t>(1, result.terms))},
                         {"lr", lr(done.step)},
                         {"samples", result.samples},
                         {"seconds", seconds},
                         {"samples_per_s", sums.samples_per_s()},
                         {"cuts", cuts_json(result, run_.codec_names, done.error_measured)},
                         {"workers", workers_json(result, optimizer_seconds, config_.replicas)}};
  if (done.loss_scale) line.update({{"loss_scale", *done.loss_scale}, {"skipped", result.non_finite}});
  file_->append(line);
  observer_.on_step({done.epoch, done.step + 1, run_.batches->end_step(), in_epoch_.mean_loss(), in_epoch_.accuracy(),
                     in_epoch_.samples_per_s(), static_cast<double>(in_epoch_.wire_bytes) / 1e6 / in_epoch_.seconds, lr(done.step),
                     done.error_measured, &result});
}

void RunLog::epoch(EpochResult validated, double seconds, std::uint64_t steps_done) {
  last_ = std::move(validated);
  last_.loss = in_epoch_.mean_loss();
  last_.accuracy = in_epoch_.accuracy();
  last_.seconds = seconds;
  file_->append({{"kind", "epoch"},
                 {"epoch", last_.epoch},
                 {"end_step", steps_done},
                 {"steps", in_epoch_.steps},
                 {"skipped", in_epoch_.skipped},
                 {"loss", last_.loss},
                 {"accuracy", last_.accuracy},
                 {"val_loss", last_.val_loss},
                 {"val_accuracy", last_.val_accuracy},
                 {"metric", last_.val_metrics.at(0).first},
                 {"val_metric", last_.val_metrics.at(0).second},
                 {"val_metrics", json_of(last_.val_metrics)},
                 {"lr", lr(steps_done - 1)},
                 {"seconds", seconds},
                 {"samples_per_s", in_epoch_.samples_per_s()},
                 {"wire_bytes", in_epoch_.wire_bytes}});
  observer_.on_epoch(last_);
  in_epoch_ = {};
}

TrainResult RunLog::totals() const {
  TrainResult result;
  result.new_steps = in_call_.steps;
  result.skipped = in_call_.skipped;
  result.val_loss = last_.val_loss;
  result.val_accuracy = last_.val_accuracy;
  result.bytes_per_step = static_cast<double>(in_call_.wire_bytes) / static_cast<double>(std::max<std::uint64_t>(1, in_call_.steps));
  result.samples_per_s = in_call_.samples_per_s();
  return result;
}

}  // namespace epipe::train
