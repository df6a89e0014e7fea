#include "epipe/pipeline/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <stdexcept>

#include "epipe/base/clock.h"
#include "epipe/pipeline/checked.h"
#include "epipe/pipeline/chunks.h"
#include "epipe/pipeline/cut.h"
#include "epipe/pipeline/encoder_state.h"
#include "epipe/pipeline/failure.h"
#include "epipe/pipeline/gradient_hooks.h"
#include "epipe/pipeline/worker_thread.h"
#include "epipe/schedule/validate.h"

namespace epipe::pipeline {
namespace {

using schedule::Action;
using schedule::Kind;
using wire::Direction;

// One call of train_step or evaluate, shared by the workers. Each micro-batch is written by the worker of the last stage only.
struct Run {
  const Batch& batch;
  StepId id;
  bool training;
  std::vector<Chunk> chunks;
  const schedule::Schedule& schedule;
  std::vector<double> losses{};  // by micro-batch, summed over its samples
  std::vector<double> correct{};
  std::vector<Tensors> loss_gradients{};  // of the last stage's outputs, until its backward
  std::vector<torch::Tensor> predictions{};
  std::atomic<bool> non_finite = false;
};

void keep_forwards(schedule::Schedule& schedule) {
  for (auto& actions : schedule.per_worker) std::erase_if(actions, [](const Action& a) { return a.kind == Kind::kBackward; });
}

}  // namespace

class Pipeline::Impl {
 public:
  Impl(std::vector<std::shared_ptr<Layer>> layers, PipelineConfig config, Loss loss);
  // A thread of one cut that fails closes all cuts, so all threads end before the first cut goes.
  ~Impl() {
    close();
    for (const auto& cut : cuts_) cut->join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  StepResult run(const Batch& batch, StepId id, bool training);
  void on_workers(const std::function<void(int, const std::vector<Stage*>&)>& work);

  std::vector<Stage>& stages() { return stages_; }
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
  std::unique_ptr<Cut> make_cut(int j);
  const schedule::Schedule& schedule_for(int chunks, bool training);
  void on_threads(const std::function<void(std::size_t)>& work);
  void run_worker(std::size_t worker, Run& run);
  void look_for_non_finite(std::size_t worker, Run& run);
  void run_forward(const Action& action, Run& run, int worker);
  void run_backward(const Action& action, Run& run, int worker);
  void send(int j, Direction direction, int i, Tensors tensors, const Run& run, int worker);
  void finish_forward(int i, const Tensors& outputs, Run& run);
  Tensors backward(int i, int j, const Tensors& gradients, const Run& run);
  void exchange_gradients(const Run& run, int worker);
  ForwardContext context(const Batch& micro_batch, const Run& run) const;
  StepResult collect(const Run& run);
  // Between two workers, or where one worker stands for all.
  bool is_coded(int j) const {
    const CutCodecs& codecs = config_.codecs[static_cast<std::size_t>(j)];
    return config_.placement.crosses(j) || (workers() == 1 && (codecs.forward != "none" || codecs.backward != "none"));
  }
  int worker_of(int stage) const { return config_.placement.worker_of[static_cast<std::size_t>(stage)]; }
  bool is_last(int stage) const { return static_cast<std::size_t>(stage) + 1 == stages_.size(); }
  Stage& stage(int j) { return stages_[static_cast<std::size_t>(j)]; }
  Cut& cut(int j) { return *cuts_[static_cast<std::size_t>(j)]; }

  PipelineConfig config_;
  Loss loss_;
  std::vector<Stage> stages_;
  std::vector<std::unique_ptr<GradientHooks>> hooks_;  // by stage; none without an exchange, null elsewhere
  Failure failure_;
  std::mutex cuts_mutex_;  // guards closed_, and cuts_ while it grows
  bool closed_ = false;
  std::vector<std::unique_ptr<Cut>> cuts_;
  std::map<std::pair<int, bool>, schedule::Schedule> schedules_;  // by chunks and training
  std::vector<WorkerTimes> times_;
  std::vector<std::unique_ptr<WorkerThread>> threads_;  // by worker, null elsewhere; last: they use all of the above
};

Pipeline::Impl::Impl(std::vector<std::shared_ptr<Layer>> layers, PipelineConfig config, Loss loss)
    : config_(checked(std::move(config), layers.size())), loss_(std::move(loss)), failure_([this] { close(); }) {
  make_stages(layers);
  if (config_.exchange != nullptr) make_hooks();
  for (int j = 0; j < static_cast<int>(config_.cuts.size()); ++j) add_cut(make_cut(j));
  times_.resize(static_cast<std::size_t>(workers()));
  threads_.resize(static_cast<std::size_t>(workers()));
  for (int w = 0; w < workers(); ++w) {
    if (!config_.elsewhere.has(w))
      threads_[static_cast<std::size_t>(w)] = std::make_unique<WorkerThread>(config_.threads, config_.devices[static_cast<std::size_t>(w)]);
  }
}

void Pipeline::Impl::make_stages(const std::vector<std::shared_ptr<Layer>>& layers) {
  std::size_t begin = 0;
  for (std::size_t j = 0; j <= config_.cuts.size(); ++j) {
    const std::size_t end = j < config_.cuts.size() ? config_.cuts[j] : layers.size();
    const int worker = worker_of(static_cast<int>(j));
    Stage::Options options;
    options.recompute = config_.recompute;
    options.precision = config_.precision;
    if (j == 0) options.input_edge = config_.input_edge;
    // What topk dropped on the way here has no part in the result, so its gradient is dropped on the way back.
    options.mask_gradients = j > 0 && is_coded(static_cast<int>(j) - 1) && config_.codecs[j - 1].forward.starts_with("topk:");
    std::vector<std::shared_ptr<Layer>> own;
    if (!config_.elsewhere.has(worker)) {
      own.assign(layers.begin() + static_cast<std::ptrdiff_t>(begin), layers.begin() + static_cast<std::ptrdiff_t>(end));
    }
    stages_.emplace_back(std::move(own), config_.devices[static_cast<std::size_t>(worker)], options);
    begin = end;
  }
}

void Pipeline::Impl::make_hooks() {
  if (config_.elsewhere.workers.size() + 1 != static_cast<std::size_t>(workers())) {
    throw std::invalid_argument("gradients are exchanged where one worker of a pipeline is, not several");
  }
  hooks_.resize(stages_.size());
  for (std::size_t j = 0; j < stages_.size(); ++j) {
    std::vector<torch::Tensor> parameters;
    for (const auto& layer : stages_[j].layers()) {
      for (const auto& parameter : layer->parameters()) parameters.push_back(parameter);
    }
    if (config_.elsewhere.has(worker_of(static_cast<int>(j)))) continue;
    hooks_[j] = std::make_unique<GradientHooks>(parameters, [this](const torch::Tensor& p) { config_.exchange->ready(p); });
  }
}

std::unique_ptr<Cut> Pipeline::Impl::make_cut(int j) {
  const int earlier = worker_of(j);
  const int later = worker_of(j + 1);
  const bool earlier_here = !config_.elsewhere.has(earlier);
  const bool later_here = !config_.elsewhere.has(later);
  if (!is_coded(j) || (!earlier_here && !later_here)) return Cut::within_worker();
  Cut::Config cut;
  cut.forward = config_.codecs[static_cast<std::size_t>(j)].forward;
  cut.backward = config_.codecs[static_cast<std::size_t>(j)].backward;
  cut.index = static_cast<std::uint16_t>(j);
  // Evaluation runs the forwards of gpipe, whatever training runs.
  cut.capacity =
      static_cast<std::size_t>(std::max(schedule::queue_capacity(config_.policy), schedule::queue_capacity(schedule::Policy::kGpipe)));
  if (earlier == later) cut.capacity = std::max(cut.capacity, static_cast<std::size_t>(config_.chunks));  // its worker must never wait
  cut.patience = config_.elsewhere.patience;
  cut.flag_non_finite = config_.loss_scaling;
  cut.devices = {config_.devices[static_cast<std::size_t>(earlier)], config_.devices[static_cast<std::size_t>(later)]};
  cut.tracer = config_.tracer;
  const auto on_failure = [this](std::exception_ptr error) { failure_.report(std::move(error)); };
  if (earlier_here && later_here) return Cut::between_threads(cut, on_failure);
  return Cut::to_peer(cut, earlier_here ? Side::kEarlier : Side::kLater, config_.elsewhere.link(j, earlier_here ? later : earlier),
                      on_failure);
}

const schedule::Schedule& Pipeline::Impl::schedule_for(int chunks, bool training) {
  const auto found = schedules_.find({chunks, training});
  if (found != schedules_.end()) return found->second;
  // Evaluation runs the forwards of gpipe; nothing is kept for a backward, so nothing limits how far it runs ahead.
  const auto policy = training ? config_.policy : schedule::Policy::kGpipe;
  auto made = schedule::generate(policy, config_.placement, chunks);
  if (!made) throw std::invalid_argument(made.error().message);
  if (const auto valid = schedule::validate(made.value(), schedule::queue_capacity(policy)); !valid)
    throw std::logic_error(valid.error().message);
  if (!training) keep_forwards(made.value());
  return schedules_.emplace(std::pair{chunks, training}, std::move(made).value()).first->second;
}

StepResult Pipeline::Impl::run(const Batch& batch, StepId id, bool training) {
  failure_.rethrow_if_any();
  const int chunk_count = id.chunks > 0 ? id.chunks : config_.chunks;
  auto chunks = split(batch.size(), chunk_count);
  Run run{batch, id, training, std::move(chunks), schedule_for(chunk_count, training)};
  const auto m = static_cast<std::size_t>(chunk_count);
  run.losses.resize(m);
  run.correct.resize(m);
  run.loss_gradients.resize(m);
  run.predictions.resize(m);
  on_threads([this, &run](std::size_t worker) { run_worker(worker, run); });
  failure_.rethrow_if_any();
  return collect(run);
}

// Runs work(worker), which must not throw, in the thread of every worker that is here, and waits.
void Pipeline::Impl::on_threads(const std::function<void(std::size_t)>& work) {
  for (std::size_t w = 0; w < threads_.size(); ++w) {
    if (threads_[w]) threads_[w]->start([&work, w] { work(w); });
  }
  for (const auto& thread : threads_) {
    if (thread) thread->wait();
  }
}

// The program of one worker. Its first error ends the run for everybody.
void Pipeline::Impl::run_worker(std::size_t worker, Run& run) {
  times_[worker] = {};
  const layer::CastScope casts;
  try {
    for (std::size_t j = 0; j < stages_.size(); ++j) {
      if (run.training && config_.placement.worker_of[j] == static_cast<int>(worker)) stages_[j].reset();
    }
    if (run.training && config_.exchange != nullptr) config_.exchange->begin(run.id.step);
    for (const Action& action : run.schedule.per_worker[worker]) {
      if (action.kind == Kind::kForward) {
        run_forward(action, run, static_cast<int>(worker));
      } else {
        run_backward(action, run, static_cast<int>(worker));
      }
    }
    if (run.training && config_.exchange != nullptr) exchange_gradients(run, static_cast<int>(worker));
    if (run.training && config_.loss_scaling) look_for_non_finite(worker, run);
    for (const auto& cut : cuts_) cut->finish_encoding();
  } catch (const Closed&) {
    // Another thread failed and said why.
  } catch (...) {
    failure_.report(std::current_exception());
  }
}

void Pipeline::Impl::look_for_non_finite(std::size_t worker, Run& run) {
  for (std::size_t j = 0; j < stages_.size(); ++j) {
    if (config_.placement.worker_of[j] == static_cast<int>(worker) && !stages_[j].gradients_finite()) run.non_finite = true;
  }
}

ForwardContext Pipeline::Impl::context(const Batch& micro_batch, const Run& run) const {
  ForwardContext at;
  at.seed = config_.seed;
  at.epoch = run.id.epoch;
  at.step = run.id.step;
  at.samples = micro_batch.samples;
  at.side = micro_batch.side;
  at.training = run.training;
  return at;
}

void Pipeline::Impl::run_forward(const Action& action, Run& run, int worker) {
  const auto [kind, i, j] = action;
  WorkerTimes& times = times_[static_cast<std::size_t>(worker)];
  const Batch micro_batch = slice(run.batch, run.chunks[static_cast<std::size_t>(i)]);
  Tensors tensors = micro_batch.inputs;
  if (j > 0) {
    const Span span(times.wait, config_.tracer, worker, "wait", run.id.step);
    tensors = cut(j - 1).recv(Direction::kForward, run.id.step, static_cast<std::uint32_t>(i));
  }
  {
    const Span span(times.forward, config_.tracer, worker, "forward", run.id.step, schedule::to_string(action));
    const ForwardContext at = context(micro_batch, run);
    tensors = run.training ? stage(j).forward(i, tensors, j > 0, at) : stage(j).evaluate(tensors, at);
    if (is_last(j)) finish_forward(i, tensors, run);
  }
  if (!is_last(j)) send(j, Direction::kForward, i, std::move(tensors), run, worker);
}

// Waits only when the cut's queue is full.
void Pipeline::Impl::send(int j, Direction direction, int i, Tensors tensors, const Run& run, int worker) {
  if (config_.tap && run.training) config_.tap(j, direction, i, tensors);
  const Span span(times_[static_cast<std::size_t>(worker)].wait, config_.tracer, worker, "wait", run.id.step);
  cut(j).send(direction, {run.id.step, static_cast<std::uint32_t>(i), !run.training, run.id.measure_error, std::move(tensors)});
}

// The loss of micro-batch i, and where training its gradient: the backward of the last stage starts from there. The loss is the mean over
// the batch, so each micro-batch contributes its sum divided by the samples of the whole batch. Losses are computed in float32. Dividing
// by a power of two is exact, so the loss scale changes no digit of a gradient.
void Pipeline::Impl::finish_forward(int i, const Tensors& outputs, Run& run) {
  const auto index = static_cast<std::size_t>(i);
  const torch::Tensor targets = slice(run.batch, run.chunks[index]).targets;
  Tensors leaves;
  for (const auto& output : outputs) leaves.push_back(output.detach().requires_grad_(run.training && output.is_floating_point()));
  const torch::AutoGradMode grad(run.training);
  Tensors values;
  for (const auto& leaf : leaves) values.push_back(leaf.is_floating_point() ? leaf.to(torch::kFloat32) : leaf);
  const LossResult result = loss_(values, targets.defined() ? targets.to(leaves[0].device()) : targets);
  run.losses[index] = result.sum.item<double>();
  run.correct[index] = result.correct;
  run.predictions[index] = result.predictions;
  if (!run.training) return;
  const std::int64_t samples = run.id.samples > 0 ? run.id.samples : run.batch.size();
  (result.sum / (static_cast<double>(samples) / run.id.loss_scale)).backward();
  for (const auto& leaf : leaves) run.loss_gradients[index].push_back(leaf.grad());
}

void Pipeline::Impl::run_backward(const Action& action, Run& run, int worker) {
  const auto [kind, i, j] = action;
  WorkerTimes& times = times_[static_cast<std::size_t>(worker)];
  Tensors gradients;
  if (is_last(j)) {
    gradients = std::move(run.loss_gradients[static_cast<std::size_t>(i)]);
  } else {
    const Span span(times.wait, config_.tracer, worker, "wait", run.id.step);
    gradients = cut(j).recv(Direction::kBackward, run.id.step, static_cast<std::uint32_t>(i));
  }
  {
    const Span span(times.backward, config_.tracer, worker, "backward", run.id.step, schedule::to_string(action));
    gradients = backward(i, j, gradients, run);
  }
  if (j > 0) send(j - 1, Direction::kBackward, i, std::move(gradients), run, worker);
}

// Micro-batches come in ascending order, so the last one completes the gradients of the stage.
Tensors Pipeline::Impl::backward(int i, int j, const Tensors& gradients, const Run& run) {
  const bool completes = !hooks_.empty() && static_cast<std::size_t>(i) + 1 == run.chunks.size();
  if (!completes) return stage(j).backward(i, gradients);
  GradientHooks& hooks = *hooks_[static_cast<std::size_t>(j)];
  hooks.arm();
  Tensors of_inputs = stage(j).backward(i, gradients);
  hooks.finish();
  return of_inputs;
}

// Tensors for other workers are on their way by now.
void Pipeline::Impl::exchange_gradients(const Run& run, int worker) {
  WorkerTimes& times = times_[static_cast<std::size_t>(worker)];
  const Span span(times.all_reduce, config_.tracer, worker, "all_reduce", run.id.step);
  times.all_reduce_bytes = config_.exchange->finish();
}

StepResult Pipeline::Impl::collect(const Run& run) {
  StepResult result;
  result.samples = run.batch.size();
  for (const double loss : run.losses) result.loss += loss;
  result.loss /= static_cast<double>(result.samples);
  for (const double correct : run.correct) result.correct += correct;
  result.non_finite = run.non_finite;
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
  if (!run.training) result.targets = run.batch.targets;
  if (!run.training && !run.predictions.empty() && run.predictions[0].defined()) result.predictions = torch::cat(run.predictions);
  return result;
}

void Pipeline::Impl::on_workers(const std::function<void(int, const std::vector<Stage*>&)>& work) {
  std::vector<std::exception_ptr> errors(threads_.size());
  on_threads([&](std::size_t w) {
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
}

Pipeline::Pipeline(std::vector<std::shared_ptr<Layer>> layers, PipelineConfig config, Loss loss)
    : impl_(std::make_unique<Impl>(std::move(layers), std::move(config), std::move(loss))) {}
Pipeline::~Pipeline() = default;

StepResult Pipeline::train_step(const Batch& batch, StepId id) { return impl_->run(batch, id, true); }
StepResult Pipeline::evaluate(const Batch& batch, StepId id) { return impl_->run(batch, id, false); }
void Pipeline::on_workers(const std::function<void(int, const std::vector<Stage*>&)>& work) { impl_->on_workers(work); }
int Pipeline::stages() const { return static_cast<int>(impl_->stages().size()); }
int Pipeline::workers() const { return impl_->workers(); }

void Pipeline::commit_batch() {
  for (const Stage& stage : impl_->stages()) {
    for (const auto& layer : stage.layers()) layer->commit_batch();
  }
}

void Pipeline::discard_batch() {
  for (const Stage& stage : impl_->stages()) {
    for (const auto& layer : stage.layers()) layer->discard_batch();
  }
}

codec::State Pipeline::encoder_state() const { return pipeline::encoder_state(impl_->cuts()); }
void Pipeline::set_encoder_state(const codec::State& state) { pipeline::set_encoder_state(impl_->cuts(), state); }

}  // namespace epipe::pipeline
