#include "epipe/pipeline/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <stdexcept>

#include "epipe/pipeline/checked.h"
#include "epipe/pipeline/encoder_state.h"
#include "epipe/pipeline/failure.h"
#include "epipe/pipeline/worker_run.h"
#include "epipe/pipeline/worker_thread.h"
#include "epipe/schedule/overlapped.h"
#include "epipe/schedule/validate.h"

namespace epipe::pipeline {
namespace {

using schedule::Action;
using schedule::Kind;
using wire::Direction;

// Evaluation runs the forwards of gpipe; nothing is kept for a backward, so nothing limits how far it runs ahead.
constexpr std::string_view kEvaluation = "gpipe";

int capacity_of(std::string_view schedule, int chunks, int in_flight) {
  return schedule::queue_capacity(schedule::find_generator(schedule).value(), chunks, in_flight);
}

void keep_forwards(schedule::Schedule& schedule) {
  for (auto& actions : schedule.per_worker) std::erase_if(actions, [](const Action& a) { return a.kind != Kind::kForward; });
}

// In the order of micro-batches; those that are not here are 0.
double sum_of(const std::vector<torch::Tensor>& by_micro_batch) {
  double sum = 0;
  for (const auto& value : by_micro_batch) {
    if (value.defined()) sum += value.item<double>();
  }
  return sum;
}

int chunks_of(const std::unique_ptr<OpenStep>& step) { return step ? static_cast<int>(step->run.chunks.size()) : 0; }

void make_room(Run& run) {
  const std::size_t m = run.chunks.size();
  run.losses.resize(m);
  run.correct.resize(m);
  run.scaled_losses.resize(m);
  run.loss_gradients.resize(m);
  run.predictions.resize(m);
}

}  // namespace

class Pipeline::Impl {
 public:
  Impl(const std::vector<std::shared_ptr<Layer>>& layers, PipelineConfig config, Loss loss);
  // A thread of one cut that fails closes all cuts, so all threads end before the first cut goes.
  ~Impl() {
    close();
    for (const auto& cut : cuts_) cut->join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  StepResult run(const Batch& batch, const StepId& id, bool training, const WorkerJob& then, const AuditRun* audit = nullptr);
  StepResult overlapped_step(const Batch* batch, const StepId& id);
  void early_backwards();
  AuditRunResult audit(const Batch& batch, const StepId& id, const AuditRun& audit);
  void run_action(const Action& action, const Batch& micro_batch, const StepId& id, bool training);
  void on_workers(const WorkerJob& work);

  std::deque<Stage>& stages() { return stages_; }
  std::string graphs_refusal(const Stage& stage) const {
    if (config_.delay == 0 || !config_.graphs || !stage.device().is_cuda()) return stage.graphs_refusal();
    return "with --delay its weights have two versions";
  }
  std::vector<std::unique_ptr<Cut>>& cuts() { return cuts_; }
  int workers() const { return config_.placement.workers(); }

 private:
  // By any thread, also while the constructor still adds cuts: a link may be lost at once.
  void close() {
    const std::lock_guard lock(cuts_mutex_);
    closed_ = true;
    for (const auto& cut : cuts_) cut->close();
  }
  void add_cut(std::unique_ptr<Cut> cut) {
    const std::lock_guard lock(cuts_mutex_);
    if (closed_) cut->close();
    cuts_.push_back(std::move(cut));
  }
  void make_stages(const std::vector<std::shared_ptr<Layer>>& layers);
  void make_hooks();
  bool is_late(const torch::Tensor& parameter) const;
  std::unique_ptr<Cut> make_cut(int j);
  const schedule::Schedule& schedule_for(int chunks, bool training);
  std::exception_ptr on_threads(const std::function<void(std::size_t)>& work);
  void run_worker(std::size_t worker, Run& run);
  void on_workers_of_step(const std::function<void(int worker)>& work);
  void run_overlapped(int worker, OpenStep* newer, OpenStep* older);
  void use_version(const Action& action, const Run& run) { config_.versions[static_cast<std::size_t>(action.stage)]->use(run.id.step); }
  bool runs_early() const { return !config_.remote.workers.empty(); }
  StepResult collect(const Run& run);
  StepResult collect_measurements();
  void check_rates(const Rates& rates) const;
  // Between two workers, or where one worker stands for all.
  bool is_coded(int j) const {
    const CutCodecs& codecs = config_.codecs[static_cast<std::size_t>(j)];
    return config_.placement.crosses(j) || (workers() == 1 && (codecs.forward != "none" || codecs.backward != "none"));
  }
  int worker_of(int stage) const { return config_.placement.worker_of[static_cast<std::size_t>(stage)]; }

  PipelineConfig config_;
  Loss loss_;
  std::deque<Stage> stages_;                           // which stay where they are
  std::vector<std::unique_ptr<GradientHooks>> hooks_;  // by stage; none without an exchange, null elsewhere
  Failure failure_;
  std::mutex cuts_mutex_;  // guards closed_, and cuts_ while it grows
  bool closed_ = false;
  std::vector<std::unique_ptr<Cut>> cuts_;
  std::map<std::pair<int, bool>, schedule::Schedule> schedules_;  // by chunks and training
  std::unique_ptr<OpenStep> open_;                                // where steps overlap
  std::vector<WorkerTimes> times_;
  std::vector<std::unique_ptr<WorkerThread>> threads_;  // by worker, null elsewhere; last: they use all of the above
};

Pipeline::Impl::Impl(const std::vector<std::shared_ptr<Layer>>& layers, PipelineConfig config, Loss loss)
    : config_(checked(std::move(config), layers.size())), loss_(std::move(loss)), failure_([this] { close(); }) {
  make_stages(layers);
  for (int j = 0; j < static_cast<int>(config_.cuts.size()); ++j) add_cut(make_cut(j));
  times_.resize(static_cast<std::size_t>(workers()));
  threads_.resize(static_cast<std::size_t>(workers()));
  for (int w = 0; w < workers(); ++w) {
    if (config_.remote.has(w)) continue;
    const torch::Device device = config_.devices[static_cast<std::size_t>(w)];
    boundary::synchronize_current_stream(device);  // weights were loaded and laid out by this thread, the worker has a stream of its own
    threads_[static_cast<std::size_t>(w)] = std::make_unique<WorkerThread>(config_.threads, device);
  }
  if (config_.exchange != nullptr) make_hooks();
}

void Pipeline::Impl::make_stages(const std::vector<std::shared_ptr<Layer>>& layers) {
  std::size_t begin = 0;
  for (std::size_t j = 0; j <= config_.cuts.size(); ++j) {
    const std::size_t end = j < config_.cuts.size() ? config_.cuts[j] : layers.size();
    const int worker = worker_of(static_cast<int>(j));
    Stage::Options options;
    options.recompute = config_.recompute;
    options.graphs = config_.graphs && config_.exchange == nullptr &&  // gradients that are exchanged are exchanged one by one
                     config_.delay == 0;                               // and a graph knows one version of the weights
    options.precision = config_.precision;
    if (j == 0) options.input_edge = config_.input_edge;
    // What topk dropped on the way here has no part in the result, so its gradient is dropped on the way back.
    options.mask_gradients = j > 0 && is_coded(static_cast<int>(j) - 1) && config_.codecs[j - 1].forward.starts_with("topk:");
    std::vector<std::shared_ptr<Layer>> own;
    if (!config_.remote.has(worker)) {
      own.assign(layers.begin() + static_cast<std::ptrdiff_t>(begin), layers.begin() + static_cast<std::ptrdiff_t>(end));
    }
    stages_.emplace_back(std::move(own), config_.devices[static_cast<std::size_t>(worker)], options);
    if (config_.delay > 0 && config_.versions[j] != nullptr) config_.versions[j]->follow_layout();
    begin = end;
  }
}

// Its gradient is complete only when the layer that shares it has added its part.
bool Pipeline::Impl::is_late(const torch::Tensor& parameter) const {
  for (const Stage& stage : stages_) {
    for (const auto& layer : stage.layers()) {
      for (const auto& [name, late] : layer->late_gradients()) {
        if (late.is_same(parameter)) return true;
      }
    }
  }
  return false;
}

// In the workers' threads: autograd adds a gradient on the stream on which its hook was made.
void Pipeline::Impl::make_hooks() {
  if (config_.remote.workers.size() + 1 != static_cast<std::size_t>(workers())) {
    throw std::invalid_argument("gradients are exchanged where one worker of a pipeline is, not several");
  }
  hooks_.resize(stages_.size());
  on_workers([this](int worker, const auto&) {
    for (std::size_t j = 0; j < stages_.size(); ++j) {
      if (worker_of(static_cast<int>(j)) != worker) continue;
      std::vector<torch::Tensor> parameters;
      for (const auto& layer : stages_[j].layers()) {
        for (const auto& parameter : layer->parameters()) {
          if (!is_late(parameter)) parameters.push_back(parameter);
        }
      }
      hooks_[j] = std::make_unique<GradientHooks>(parameters, [this](const torch::Tensor& p) { config_.exchange->ready(p); });
    }
  });
}

std::unique_ptr<Cut> Pipeline::Impl::make_cut(int j) {
  const int earlier = worker_of(j);
  const int later = worker_of(j + 1);
  const bool earlier_here = !config_.remote.has(earlier);
  const bool later_here = !config_.remote.has(later);
  if (!is_coded(j) || (!earlier_here && !later_here)) return Cut::within_worker();
  Cut::Config cut;
  cut.forward = config_.codecs[static_cast<std::size_t>(j)].forward;
  cut.backward = config_.codecs[static_cast<std::size_t>(j)].backward;
  cut.index = static_cast<std::uint16_t>(j);
  const int most = std::max(config_.chunks, kAuditMicroBatches);
  const auto capacity = [&](std::string_view name) { return capacity_of(name, most, config_.in_flight); };
  cut.capacity = static_cast<std::size_t>(std::max(capacity(config_.schedule), capacity(kEvaluation)));
  cut.steps_overlap = config_.delay > 0;
  if (cut.steps_overlap) cut.capacity = static_cast<std::size_t>(schedule::overlapped_capacity(config_.chunks));
  if (earlier == later) cut.capacity = std::max(cut.capacity, static_cast<std::size_t>(most));  // its worker must never wait
  cut.timeout = config_.remote.timeout;
  cut.codec_threads = config_.codec_threads;
  cut.flag_non_finite = config_.loss_scaling;
  cut.devices = {config_.devices[static_cast<std::size_t>(earlier)], config_.devices[static_cast<std::size_t>(later)]};
  cut.tracer = config_.tracer;
  const auto on_failure = [this](std::exception_ptr error) { failure_.report(std::move(error)); };
  if (earlier_here && later_here) return Cut::between_threads(cut, on_failure);
  const Side side = earlier_here ? Side::kEarlier : Side::kLater;
  auto link = config_.remote.link(j, earlier_here ? later : earlier);
  if (j == 0 && config_.reuse.on) return Cut::reusing(cut, side, std::move(link), config_.reuse.frames, on_failure);
  return Cut::to_peer(cut, side, std::move(link), on_failure);
}

const schedule::Schedule& Pipeline::Impl::schedule_for(int chunks, bool training) {
  const auto found = schedules_.find({chunks, training});
  if (found != schedules_.end()) return found->second;
  const std::string_view name = training ? std::string_view(config_.schedule) : kEvaluation;
  const bool splits = schedule::find_generator(name).value().splits_backward;
  schedule::Costs costs = config_.costs.forward.empty() ? schedule::slot_costs(config_.placement.stages(), splits) : config_.costs;
  if (!training) std::fill(costs.backward.begin(), costs.backward.end(), 0);
  auto made = schedule::generate(name, config_.placement, chunks, costs, config_.in_flight);
  if (!made) throw std::invalid_argument(made.error().message);
  const auto valid = schedule::validate(made.value(), capacity_of(name, chunks, config_.in_flight));
  if (!valid) throw std::logic_error(valid.error().message);
  if (!training) keep_forwards(made.value());
  if (training) schedule::drop_backwards(made.value(), config_.first_trained);
  return schedules_.emplace(std::pair{chunks, training}, std::move(made).value()).first->second;
}

// Whoever leaves a rate to its caller gets one.
void Pipeline::Impl::check_rates(const Rates& rates) const {
  if (!rates.empty() && rates.size() != cuts_.size()) throw std::invalid_argument("expected rates for each cut, or none");
  for (std::size_t j = 0; j < cuts_.size(); ++j) {
    for (const auto direction : {Direction::kForward, Direction::kBackward}) {
      const bool has_gradients = static_cast<int>(j) >= config_.first_trained;
      const bool carried = is_coded(static_cast<int>(j)) && (direction == Direction::kForward || has_gradients);
      const bool open = carried && config_.codecs[j].of(direction) == "auto";
      if (!open || (!rates.empty() && rates[j].of(direction) > 0)) continue;
      throw std::invalid_argument(fmt::format(
          "the codec auto without a number has its rate chosen by `epipe train`; say bits per value at cut {}, as in auto:2", j));
    }
  }
}

StepResult Pipeline::Impl::run(const Batch& batch, const StepId& id, bool training, const WorkerJob& then, const AuditRun* audit) {
  failure_.rethrow_if_any();
  if (audit == nullptr) check_rates(id.rates);
  const int chunk_count = id.chunks > 0 ? id.chunks : config_.chunks;
  auto chunks = split(batch.size(), chunk_count);
  const std::int64_t terms = std::max<std::int64_t>(1, id.terms > 0 ? id.terms : layer::loss_terms(batch));
  Run run{batch, id, training, then, std::move(chunks), terms, schedule_for(chunk_count, training), audit};
  make_room(run);
  on_workers_of_step([&](int worker) { run_worker(static_cast<std::size_t>(worker), run); });
  return collect(run);
}

StepResult Pipeline::Impl::overlapped_step(const Batch* batch, const StepId& id) {
  failure_.rethrow_if_any();
  std::unique_ptr<OpenStep> newer;
  if (batch != nullptr) {
    check_rates(id.rates);
    const std::int64_t terms = std::max<std::int64_t>(1, id.terms > 0 ? id.terms : layer::loss_terms(*batch));
    newer = std::make_unique<OpenStep>(*batch, id, split(batch->size(), id.chunks > 0 ? id.chunks : config_.chunks), terms);
    make_room(newer->run);
  }
  on_workers_of_step([&](int worker) { run_overlapped(worker, newer.get(), open_.get()); });
  StepResult result = newer ? collect(newer->run) : collect_measurements();
  times_.assign(times_.size(), {});
  open_ = std::move(newer);
  return result;
}

void Pipeline::Impl::early_backwards() {
  failure_.rethrow_if_any();
  if (!open_ || !runs_early()) return;
  on_workers_of_step([&](int worker) {
    const layer::CastScope casts;
    WorkerRun run({config_, loss_, stages_, cuts_, hooks_}, worker, open_->run, times_[static_cast<std::size_t>(worker)]);
    for (const Action& action : schedule::early_backwards(config_.placement, config_.first_trained, chunks_of(open_), worker)) {
      use_version(action, open_->run);
      run.run(action);
    }
  });
}

// Casts of weights are kept for as long as the weights are the same.
void Pipeline::Impl::run_overlapped(int worker, OpenStep* newer, OpenStep* older) {
  const int newer_chunks = newer != nullptr ? static_cast<int>(newer->run.chunks.size()) : 0;
  const schedule::OverlappedRequest request{config_.placement, config_.first_trained, newer_chunks, chunks_of(open_), runs_early()};
  std::optional<layer::CastScope> casts;
  const OpenStep* before = nullptr;
  for (const auto& [action, is_older] : schedule::overlapped_actions(request, worker)) {
    OpenStep* const step = is_older ? older : newer;
    if (std::exchange(before, step) != step) casts.emplace();
    use_version(action, step->run);
    WorkerRun({config_, loss_, stages_, cuts_, hooks_}, worker, step->run, times_[static_cast<std::size_t>(worker)]).run(action);
  }
  for (std::size_t j = 0; j < stages_.size(); ++j) {
    if (worker_of(static_cast<int>(j)) != worker) continue;
    if (newer != nullptr) config_.versions[j]->gather_batch(newer->run.id.step);
    if (older != nullptr) config_.versions[j]->complete(older->run.id.step);
  }
  for (const auto& cut : cuts_) cut->finish_encoding();
}

AuditRunResult Pipeline::Impl::audit(const Batch& batch, const StepId& id, const AuditRun& audit) {
  if (static_cast<std::size_t>(id.chunks) != audit.rates.size()) throw std::invalid_argument("expected rates for each micro-batch");
  for (const Rates& rates : audit.rates) check_rates(rates);
  if (!audit.try_rates.empty() && audit.try_rates.size() != 2 * cuts_.size()) throw std::invalid_argument("expected a list for each cut");
  AuditRunResult result{run(batch, id, true, {}, &audit), {}};
  for (const auto& cut : cuts_) {
    for (const auto direction : {Direction::kForward, Direction::kBackward}) {
      boundary::Sender* const sender = cut->sender(direction);
      result.curves.push_back(sender != nullptr ? sender->take_curve() : std::vector<boundary::RatePoint>());
    }
  }
  return result;
}

void Pipeline::Impl::run_action(const Action& action, const Batch& micro_batch, const StepId& id, bool training) {
  failure_.rethrow_if_any();
  const int stages = static_cast<int>(stages_.size());
  if (action.stage < 1 || action.stage + 1 >= stages || config_.remote.has(worker_of(action.stage))) {
    throw std::invalid_argument(fmt::format("{} is no action of a stage in the middle that is here", schedule::to_string(action)));
  }
  schedule::Schedule one;
  one.per_worker.resize(static_cast<std::size_t>(workers()));
  one.per_worker[static_cast<std::size_t>(worker_of(action.stage))] = {action};
  const WorkerJob nothing;
  Run run{micro_batch, id, training, nothing, {{0, micro_batch.size()}}, micro_batch.size(), one};
  run.only = action.micro_batch;
  check_rates(id.rates);
  on_workers_of_step([&](int worker) { run_worker(static_cast<std::size_t>(worker), run); });
}

// Runs work(worker), which must not throw, in the thread of every worker that is here, and waits. Returns the first error of a device.
std::exception_ptr Pipeline::Impl::on_threads(const std::function<void(std::size_t)>& work) {
  for (std::size_t w = 0; w < threads_.size(); ++w) {
    if (threads_[w]) threads_[w]->start([&work, w] { work(w); });
  }
  std::exception_ptr first;
  for (const auto& thread : threads_) {
    const std::exception_ptr failed = thread ? thread->wait() : nullptr;
    if (!first) first = failed;
  }
  return first;
}

// The first error of a worker ends the run for everybody.
void Pipeline::Impl::on_workers_of_step(const std::function<void(int worker)>& work) {
  const auto attempt = [&](std::size_t worker) {
    try {
      work(static_cast<int>(worker));
    } catch (const Closed&) {
      // Another thread failed and said why.
    } catch (...) {
      failure_.report(std::current_exception());
    }
  };
  if (auto failed = on_threads(attempt)) failure_.report(std::move(failed));
  failure_.rethrow_if_any();
}

// The program of one worker.
void Pipeline::Impl::run_worker(std::size_t worker, Run& run) {
  times_[worker] = {};
  WorkerRun({config_, loss_, stages_, cuts_, hooks_}, static_cast<int>(worker), run, times_[worker]).execute();
}

StepResult Pipeline::Impl::collect(const Run& run) {
  StepResult result = collect_measurements();
  result.samples = run.batch.size();
  result.terms = layer::loss_terms(run.batch);
  result.loss = sum_of(run.losses) / static_cast<double>(std::max<std::int64_t>(1, result.terms));
  result.correct = sum_of(run.correct);
  result.non_finite = run.non_finite;
  if (!run.training) result.targets = run.batch.targets;
  if (!run.training && !run.predictions.empty() && run.predictions[0].defined()) result.predictions = torch::cat(run.predictions);
  return result;
}

// Traffic since the last time, and times.
StepResult Pipeline::Impl::collect_measurements() {
  StepResult result;
  result.workers = times_;
  for (std::size_t j = 0; j < cuts_.size(); ++j) {
    const auto earlier = static_cast<std::size_t>(config_.placement.worker_of[j]);
    const auto later = static_cast<std::size_t>(config_.placement.worker_of[j + 1]);
    result.forward.push_back(cuts_[j]->take_traffic(Direction::kForward));
    result.backward.push_back(cuts_[j]->take_traffic(Direction::kBackward));
    result.workers[earlier].encode += result.forward[j].encode_seconds;
    result.workers[later].decode += result.forward[j].decode_seconds;
    result.workers[later].encode += result.backward[j].encode_seconds;
    result.workers[earlier].decode += result.backward[j].decode_seconds;
  }
  for (const Stage& stage : stages_) result.peak_live.push_back(stage.peak_live());
  return result;
}

void Pipeline::Impl::on_workers(const WorkerJob& work) {
  std::vector<std::exception_ptr> errors(threads_.size());
  const auto failed = on_threads([&](std::size_t w) {
    std::vector<Stage*> own;
    for (std::size_t j = 0; j < stages_.size(); ++j) {
      if (config_.placement.worker_of[j] == static_cast<int>(w)) own.push_back(&stages_[j]);
    }
    try {
      work(static_cast<int>(w), own);
    } catch (...) {
      errors[w] = std::current_exception();
    }
  });
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  if (failed) std::rethrow_exception(failed);
}

Pipeline::Pipeline(const std::vector<std::shared_ptr<Layer>>& layers, PipelineConfig config, Loss loss)
    : impl_(std::make_unique<Impl>(layers, std::move(config), std::move(loss))) {}
Pipeline::~Pipeline() = default;

StepResult Pipeline::train_step(const Batch& batch, StepId id, const WorkerJob& then) { return impl_->run(batch, id, true, then); }
StepResult Pipeline::evaluate(const Batch& batch, StepId id) { return impl_->run(batch, id, false, {}); }
StepResult Pipeline::overlapped_step(const Batch* batch, const StepId& id) { return impl_->overlapped_step(batch, id); }
void Pipeline::early_backwards() { impl_->early_backwards(); }
AuditRunResult Pipeline::audit(const Batch& batch, const StepId& id, const AuditRun& audit) { return impl_->audit(batch, id, audit); }
void Pipeline::on_workers(const WorkerJob& work) { impl_->on_workers(work); }
void Pipeline::run_action(const Action& action, const Batch& micro_batch, const StepId& id, bool training) {
  impl_->run_action(action, micro_batch, id, training);
}

void Pipeline::begin_step() {
  impl_->on_workers([](int, const std::vector<Stage*>& stages) {
    for (Stage* const stage : stages) stage->reset();
  });
}
Pipeline::GraphUse Pipeline::graph_use() const {
  GraphUse use;
  for (std::size_t j = 0; j < impl_->stages().size(); ++j) {
    const Stage& stage = impl_->stages()[j];
    const std::string refusal = impl_->graphs_refusal(stage);
    if (!refusal.empty()) use.refusals.push_back(fmt::format("stage {}: {}", j, refusal));
    if (refusal.empty() && stage.runs_graphs()) ++use.stages;
  }
  return use;
}

int Pipeline::stages() const { return static_cast<int>(impl_->stages().size()); }
int Pipeline::workers() const { return impl_->workers(); }

void Pipeline::commit_batch() {
  impl_->on_workers([](int, const std::vector<Stage*>& stages) {
    for (Stage* const stage : stages) stage->commit_batch();
  });
}

void Pipeline::discard_batch() {
  for (const Stage& stage : impl_->stages()) {
    for (const auto& layer : stage.layers()) layer->discard_batch();
  }
}

codec::State Pipeline::encoder_state_before(std::uint64_t step) const { return pipeline::encoder_state_before(impl_->cuts(), step); }
codec::State Pipeline::encoder_state() const { return pipeline::encoder_state(impl_->cuts()); }
void Pipeline::set_encoder_state(const codec::State& state) { pipeline::set_encoder_state(impl_->cuts(), state); }

}  // namespace epipe::pipeline
