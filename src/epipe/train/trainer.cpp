#include "epipe/train/trainer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "epipe/base/clock.h"
#include "epipe/base/file.h"
#include "epipe/model/safetensors.h"
#include "epipe/train/run.h"

namespace epipe::train {
namespace {

using pipeline::StepResult;

constexpr std::size_t kTraceEvents = 20'000;

void require(const Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().message);
}

// Sums over steps: of the epoch under way, or of the whole call.
struct Sums {
  double loss = 0;
  double correct = 0;
  double samples = 0;
  std::uint64_t wire_bytes = 0;
  std::uint64_t steps = 0;
  Stopwatch watch{};

  void add(const StepResult& done) {
    loss += done.loss * static_cast<double>(done.samples);
    correct += done.correct;
    samples += static_cast<double>(done.samples);
    for (const auto& traffic : done.forward) wire_bytes += traffic.wire_bytes;
    for (const auto& traffic : done.backward) wire_bytes += traffic.wire_bytes;
    ++steps;
  }
};

// The steps of one call of train(), from first_ to end_.
class Loop {
 public:
  Loop(const TrainConfig& config, Observer& observer)
      : config_(config), observer_(observer), tracer_(kTraceEvents), run_(config, &tracer_), checkpoints_(config.run_dir + "/checkpoints") {
    for (const std::string& note : run_.notes()) observer_.on_note(note);
    if (config_.resume) {
      first_ = resume();
    } else if (!config_.weights.empty()) {
      for (const std::string& note : run_.load_file(config_.weights, model::NewParts::kHeadAndCodec)) observer_.on_note(note);
    }
    end_ = config_.max_steps > 0 ? std::min(run_.all_steps(), static_cast<std::uint64_t>(config_.max_steps)) : run_.all_steps();
    done_ = first_;
  }

  TrainResult run(const std::atomic<bool>& stop) {
    MetricsFile metrics(config_.run_dir + "/metrics.jsonl", first_);
    data::Loader loader(run_.training_data(), {config_.batch, config_.shuffle, config_.seed, first_, end_});
    while (done_ < end_ && !stop) {
      const bool epoch_over = run_step(loader, metrics);
      if (epoch_over || done_ == end_) end_epoch(metrics);
      const bool due = config_.checkpoint_every > 0 && done_ % static_cast<std::uint64_t>(config_.checkpoint_every) == 0;
      if (due) save();
    }
    return finish();
  }

 private:
  std::uint64_t resume() {
    const auto found = checkpoints_.load_newest();
    if (!found) throw std::runtime_error("nothing to resume: there is no checkpoint in " + config_.run_dir + "/checkpoints");
    run_.restore(*found);
    saved_ = found->step;
    return found->step;
  }

  // Returns whether it was the last step of its epoch.
  bool run_step(data::Loader& loader, MetricsFile& metrics) {
    const Stopwatch watch;
    const data::LoadedBatch loaded = loader.next();
    const double data_seconds = watch.seconds();
    const bool measure = config_.error_every > 0 && loaded.step % static_cast<std::uint64_t>(config_.error_every) == 0;
    const StepResult result = run_.forward_backward(loaded, measure);
    const Stopwatch updating;
    run_.update(loaded.step);
    const double optimizer_seconds = updating.seconds();
    const double seconds = watch.seconds();
    done_ = loaded.step + 1;
    epoch_ = loaded.epoch;

    Sums step;
    step.add(result);
    in_epoch_.add(result);
    in_call_.add(result);
    metrics.append({{"kind", "step"},
                    {"epoch", loaded.epoch},
                    {"step", loaded.step},
                    {"loss", result.loss},
                    {"accuracy", result.correct / step.samples},
                    {"lr", run_.lr(loaded.step)},
                    {"samples", result.samples},
                    {"seconds", seconds},
                    {"samples_per_s", step.samples / seconds},
                    {"cuts", cuts_json(result, run_.codec_names(), measure)},
                    {"workers", workers_json(result, data_seconds, optimizer_seconds)}});
    observer_.on_step({loaded.epoch, done_, end_, result.loss, result.correct / step.samples, step.samples / seconds,
                       static_cast<double>(step.wire_bytes) / 1e6 / seconds});
    return loaded.last_of_epoch;
  }

  void end_epoch(MetricsFile& metrics) {
    const double seconds = in_epoch_.watch.seconds();
    EpochResult ended = run_.validate(epoch_, done_ - 1);
    ended.loss = in_epoch_.loss / in_epoch_.samples;
    ended.accuracy = in_epoch_.correct / in_epoch_.samples;
    ended.seconds = seconds;
    metrics.append({{"kind", "epoch"},
                    {"epoch", epoch_},
                    {"end_step", done_},
                    {"steps", in_epoch_.steps},
                    {"loss", ended.loss},
                    {"accuracy", ended.accuracy},
                    {"val_loss", ended.val_loss},
                    {"val_accuracy", ended.val_accuracy},
                    {"lr", run_.lr(done_ - 1)},
                    {"seconds", seconds},
                    {"samples_per_s", in_epoch_.samples / seconds},
                    {"wire_bytes", in_epoch_.wire_bytes}});
    observer_.on_epoch(ended);
    last_ = ended;
    in_epoch_ = {};
  }

  void save() {
    if (saved_ == done_) return;
    checkpoints_.save(run_.checkpoint(done_));
    saved_ = done_;
  }

  TrainResult finish() {
    save();
    require(model::write_safetensors(config_.run_dir + "/model.safetensors", run_.weights(), {{"model", config_.model}}));
    const std::string trace = trace_json(tracer_, run_.workers());
    require(write_file(config_.run_dir + "/trace.json", {std::as_bytes(std::span(trace))}));
    TrainResult result;
    result.stopped = done_ < end_;
    result.steps = done_;
    result.val_loss = last_.val_loss;
    result.val_accuracy = last_.val_accuracy;
    result.bytes_per_step = static_cast<double>(in_call_.wire_bytes) / static_cast<double>(std::max<std::uint64_t>(1, in_call_.steps));
    result.samples_per_s = in_call_.samples / in_call_.watch.seconds();
    return result;
  }

  const TrainConfig& config_;
  Observer& observer_;
  Tracer tracer_;
  Run run_;
  Checkpoints checkpoints_;
  std::uint64_t first_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t done_ = 0;   // steps, over all calls
  std::uint64_t saved_ = 0;  // the step of the newest checkpoint; 0: none
  std::uint64_t epoch_ = 0;
  Sums in_epoch_;
  Sums in_call_;
  EpochResult last_;
};

}  // namespace

TrainResult train(const TrainConfig& config, Observer& observer, const std::atomic<bool>& stop) {
  require(make_folders(config.run_dir));
  return Loop(config, observer).run(stop);
}

std::vector<std::string> cut_names(const TrainConfig& config) { return Run(config, nullptr).cut_names(); }

EpochResult evaluate(const TrainConfig& config, const std::string& weights) {
  Run run(config, nullptr);
  run.load_file(weights, model::NewParts::kNone);
  return run.validate(0, 0);
}

}  // namespace epipe::train
