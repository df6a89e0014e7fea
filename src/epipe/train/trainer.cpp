#include "epipe/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <thread>

#include "epipe/base/clock.h"
#include "epipe/base/file.h"
#include "epipe/session/step_result.h"
#include "epipe/train/assemble.h"
#include "epipe/train/results.h"
#include "epipe/train/run_log.h"
#include "epipe/train/task_metrics.h"
#include "epipe/transport/refused.h"

namespace epipe::train {
namespace {

using pipeline::StepResult;

constexpr std::size_t kTraceEvents = 20'000;

// Every sample of the validation set once.
EpochResult validate(RunParts& run, std::uint64_t epoch, std::uint64_t step) {
  double loss = 0;
  double correct = 0;
  double terms = 0;
  const data::Dataset& data = run.batches->validation_data();
  const auto loader = run.batches->validation();
  TaskScore score(data.spec());
  for (std::uint64_t b = 0; b < run.batches->validation_steps(); ++b) {
    const StepResult part = run.evaluate(loader->next(), epoch, step);
    loss += part.loss * static_cast<double>(part.terms);
    correct += part.correct;
    terms += static_cast<double>(part.terms);
    if (!data.spec().next_token) score.add(part.predictions, part.targets);
  }
  if (terms == 0) throw std::runtime_error("the validation part has nothing to predict");
  EpochResult result;
  result.epoch = epoch;
  result.val_loss = loss / terms;
  result.val_accuracy = correct / terms;
  result.val_metrics = data.spec().next_token ? NamedMetrics{{"perplexity", std::exp(result.val_loss)}} : score.metrics();
  return result;
}

// The steps of one call of train().
class Loop {
 public:
  Loop(const Registry& registry, const TrainConfig& config, Observer& observer, const std::atomic<bool>& stop,
       session::PeerConnector* connector, std::unique_ptr<transport::Group> replicas, std::optional<FollowOptions> follow)
      : config_(config),
        observer_(observer),
        stop_(stop),
        tracer_(kTraceEvents),
        run_(assemble(registry, config, options(connector, std::move(replicas)))),
        end_(run_.batches->end_step()),
        log_(config, run_, observer) {
    if (follow) follower_.emplace(run_, std::move(*follow));
  }

  TrainResult run() {
    if (config_.resume) {
      const auto steps = session::Checkpoints(config_.run_dir + "/checkpoints").steps();
      if (steps.empty()) throw std::runtime_error("nothing to resume: there is no checkpoint in " + config_.run_dir + "/checkpoints");
      const bool finished = steps.back() >= end_ && has_result(config_.run_dir, run_.plan);
      if (finished && !config_.connect.empty()) return {.steps = steps.back()};  // the servers have forgotten it
    }
    bool tried = false;
    while (true) {
      try {
        if (!std::exchange(tried, true)) connect();
        run_steps();
        return finish();
      } catch (const transport::Refused& refused) {
        if (is_final(refused)) throw;
        recover(refused.what());
      } catch (const transport::ConnectionLost& lost) {
        recover(lost.what());
      } catch (const transport::TimedOut& late) {
        recover(late.what());
      }
    }
  }

 private:
  AssembleOptions options(session::PeerConnector* connector, std::unique_ptr<transport::Group> replicas) {
    AssembleOptions options;
    options.connector = connector;
    options.replicas = std::move(replicas);
    options.tracer = &tracer_;
    options.weights = files_of(config_);
    options.note = [this](const std::string& text) { observer_.on_note(text); };
    return options;
  }

  // With the cuts by name, so that the file alone repeats the run.
  void write_config() const {
    TrainConfig effective = config_;
    effective.cuts = run_.cut_names;
    effective.rate_changes = run_.rate_record->text();
    const std::string toml = to_toml(effective);
    require(write_file(config_.run_dir + "/config.toml", {std::as_bytes(std::span(toml))}));
  }

  // Goes on after `steps_done`, which may be earlier than where the loop was.
  void continue_at(std::uint64_t steps_done) {
    if (in_flight_ && steps_done == in_flight_->step + 1) record(*in_flight_);  // decided before the connection was lost
    in_flight_.reset();
    open_.reset();
    if (steps_done != done_) {
      log_.restart_epoch();
      epoch_due_ = false;
      save_due_ = false;
      saved_ = steps_done;
    }
    done_ = steps_done;
    log_.continue_at(done_);
    loader_ = run_.batches->training(done_);
  }

  void connect() {
    const std::uint64_t steps_done = run_.coordinator->connect();
    if (!connected_) {
      write_config();  // of a run that is not refused
      log_.begin();
    }
    continue_at(steps_done);
    connected_ = true;
  }

  void recover(const std::string& reason) {
    if (config_.reconnect <= 0) throw std::runtime_error(reason);
    const bool again = connected_;
    if (follower_) follower_->connection_lost();
    if (again) observer_.on_event(RunEvent::kConnectionLost);
    observer_.on_note(again ? fmt::format("lost after step {}: {}; connecting again", done_, reason)
                            : fmt::format("cannot connect: {}; trying for {:.0f} s", reason, config_.reconnect));
    const Stopwatch watch;
    std::string last = reason;
    for (auto pause = std::chrono::milliseconds(100); watch.seconds() < config_.reconnect && !stop_;
         pause = std::min(2 * pause, kLongestPause)) {
      std::this_thread::sleep_for(pause);
      try {
        connect();
        observer_.on_note(again ? fmt::format("connected again, going on after step {}", done_) : "connected");
        if (again) observer_.on_event(RunEvent::kConnectedAgain);
        return;
      } catch (const transport::Refused& refused) {
        // Fails after two untrusted handshakes if it never connected. Later it is the link that damages what it carries.
        if (is_final(refused) || (refused.why() == transport::Refusal::kUntrusted && !connected_)) throw;
        last = refused.what();
      } catch (const transport::ConnectionLost& lost) {
        last = lost.what();
      } catch (const transport::TimedOut& late) {
        last = late.what();
      }
    }
    throw std::runtime_error(fmt::format("{} after {:.0f} s: {}", stop_ ? "stopped" : "gave up", watch.seconds(), last));
  }

  // A change is saved before its first step: whatever happens later, that step and those after it have these rates.
  void follow_link() {
    if (!follower_ || done_ >= end_) return;
    const auto change = follower_->look(done_);
    if (!change) return;
    observer_.on_rate_change(*change);
    write_config();
    save_due_ = save_due_ || done_ > 0;
  }

  void run_steps() {
    while (true) {
      follow_link();
      if (open_ && (is_stopping() || is_due_after(*open_))) complete_open_step();
      if (epoch_due_) end_epoch();
      if (save_due_) save();
      if (!open_ && (done_ >= end_ || is_stopping())) return;
      config_.delay > 0 ? run_overlapped_step() : run_step();
    }
  }

  DoneStep begun(const data::LoadedBatch& loaded) const {
    DoneStep step;
    step.epoch = loaded.epoch;
    step.step = loaded.step;
    step.last_of_epoch = loaded.last_of_epoch;
    step.error_measured = config_.error_every > 0 && loaded.step % static_cast<std::uint64_t>(config_.error_every) == 0;
    if (run_.plan.loss_scaling) step.loss_scale = run_.coordinator->local().loss_scale();
    return step;
  }

  static void check_finite(const DoneStep& step) {
    if (step.loss_scale || std::isfinite(step.result.loss)) return;
    throw std::runtime_error(
        fmt::format("step {}: the loss is {}; expected a finite one: lower --lr, or use --clip or --warmup", step.step, step.result.loss));
  }

  void commit(DoneStep step) {
    step.updating = {};
    in_flight_ = std::move(step);
    run_.coordinator->commit(in_flight_->step, lr(in_flight_->step));
    note_refused_graphs();
    record(*std::exchange(in_flight_, std::nullopt));
  }

  void run_step() {
    const Stopwatch watch;
    const data::LoadedBatch loaded = loader_->next();
    const double data_seconds = watch.seconds();
    DoneStep step = begun(loaded);
    step.watch = watch;
    if (run_.auto_rates->is_due(loaded)) audit(loaded);
    step.result = run_.forward_backward(loaded, step.error_measured);
    step.result.workers[0].data = data_seconds;
    check_finite(step);
    commit(std::move(step));
  }

  // A step is open until the next one has its forwards. Its time is that between two commits.
  void run_overlapped_step() {
    const Stopwatch watch;
    const data::LoadedBatch loaded = loader_->next();
    const double data_seconds = watch.seconds();
    DoneStep step = begun(loaded);
    step.watch = watch;
    step.result = run_.overlapped_step(&loaded, step.error_measured);
    step.result.workers[0].data = data_seconds;
    check_finite(step);
    if (open_) {
      commit(*std::exchange(open_, std::nullopt));
      step.watch = {};
    }
    open_ = std::move(step);
  }

  // Without another one.
  void complete_open_step() {
    session::merge(open_->result, run_.overlapped_step(nullptr, false));
    commit(*std::exchange(open_, std::nullopt));
  }

  bool is_stopping() const { return stop_ || run_.coordinator->draining(); }
  bool is_due_after(const DoneStep& step) const { return step.last_of_epoch || step.step + 1 == end_ || is_save_due(step.step + 1); }
  bool is_save_due(std::uint64_t steps_done) const {
    return config_.checkpoint_every > 0 && steps_done % static_cast<std::uint64_t>(config_.checkpoint_every) == 0;
  }

  // Once.
  void note_refused_graphs() {
    if (graphs_noted_) return;
    const auto refusals = run_.coordinator->local().graph_use().refusals;
    for (const std::string& refusal : refusals) observer_.on_note(refusal + "; it runs without CUDA graphs");
    graphs_noted_ = !refusals.empty();
  }

  void audit(const data::LoadedBatch& loaded) {
    const session::AuditRequest request = run_.auto_rates->request(loaded);
    log_.audit(run_.auto_rates->take(request, run_.coordinator->audit(request)));
  }

  // A committed step.
  void record(const DoneStep& step) {
    log_.step(step);
    run_.auto_rates->count(step.result);
    done_ = step.step + 1;
    epoch_ = step.epoch;
    epoch_due_ = step.last_of_epoch || done_ == end_;
    save_due_ = is_save_due(done_);
  }

  void end_epoch() {
    const double seconds = log_.epoch_seconds();
    log_.epoch(validate(run_, epoch_, done_ - 1), seconds, done_);
    epoch_due_ = false;
  }

  void save() {
    if (saved_ != done_) {
      log_.sync();
      run_.coordinator->save();
      observer_.on_event(RunEvent::kCheckpointSaved);
    }
    saved_ = done_;
    save_due_ = false;
  }

  double lr(std::uint64_t step) const { return run_.lr.at(static_cast<std::int64_t>(step)); }

  TrainResult finish() {
    save();
    write_results(config_, run_);
    auto events = tracer_.events();
    const auto elsewhere = run_.coordinator->timelines(tracer_);
    events.insert(events.end(), elsewhere.begin(), elsewhere.end());
    const std::string trace = trace_json(events, run_.workers());
    if (log_.steps() > 0) require(write_file(config_.run_dir + "/trace.json", {std::as_bytes(std::span(trace))}));
    done_ >= end_ ? run_.coordinator->end() : run_.coordinator->leave();
    TrainResult result = log_.totals();
    result.stopped = done_ < end_;
    result.steps = done_;
    return result;
  }

  static constexpr std::chrono::milliseconds kLongestPause{2000};

  const TrainConfig& config_;
  Observer& observer_;
  const std::atomic<bool>& stop_;
  Tracer tracer_;
  RunParts run_;
  const std::uint64_t end_;
  RunLog log_;
  std::unique_ptr<data::Loader> loader_;
  bool connected_ = false;  // at least once
  bool graphs_noted_ = false;
  std::uint64_t done_ = 0;   // steps, over all calls
  std::uint64_t saved_ = 0;  // the step of the newest checkpoint; 0: none
  std::uint64_t epoch_ = 0;
  bool epoch_due_ = false;  // its last step is done, its line is not written
  bool save_due_ = false;
  std::optional<DoneStep> in_flight_;  // from its gradients until its line is written
  std::optional<DoneStep> open_;       // with --delay: from its forwards until its gradients
  std::optional<LinkFollower> follower_;
};

}  // namespace

TrainResult train(const Registry& registry, const TrainConfig& config, Observer& observer, const std::atomic<bool>& stop,
                  session::PeerConnector* connector, std::unique_ptr<transport::Group> replicas, std::optional<FollowOptions> follow) {
  const int there = replicas ? replicas->size() : 1;
  if (there != config.replicas) throw std::invalid_argument(fmt::format("expected {} replicas, got {}", config.replicas, there));
  require(make_private_folders(config.run_dir));
  return Loop(registry, config, observer, stop, connector, std::move(replicas), std::move(follow)).run();
}

EpochResult evaluate(const Registry& registry, const TrainConfig& config, const std::string& weights) {
  AssembleOptions options;
  options.weights = weights.empty() ? files_of(config) : WeightsFiles{weights, config.adapter};
  options.weights_are_whole = true;
  RunParts run = assemble(registry, config, std::move(options));
  run.coordinator->connect();
  run.auto_rates->take_most();
  return validate(run, 0, 0);
}

}  // namespace epipe::train
