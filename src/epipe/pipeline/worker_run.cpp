#include "epipe/pipeline/worker_run.h"

#include <utility>

#include "epipe/base/clock.h"
#include "epipe/pipeline/sample_tag.h"

namespace epipe::pipeline {

using schedule::Action;
using schedule::Kind;
using wire::Direction;

namespace {

// On the host, when the current stream has done what it has queued.
torch::Tensor sent_to_host(const torch::Tensor& x) {
  if (!x.defined() || x.is_cpu()) return x;
  return torch::empty(x.sizes(), x.options().device(torch::kCPU).pinned_memory(true)).copy_(x, /*non_blocking=*/true);
}

}  // namespace

void WorkerRun::execute() {
  const layer::CastScope casts;
  for (std::size_t j = 0; j < parts_.stages.size(); ++j) {
    if (run_.training && !run_.only && has(j)) parts_.stages[j].reset(actions_of(static_cast<int>(j)));
  }
  GradientExchange* const exchange = run_.training && run_.audit == nullptr ? parts_.config.exchange : nullptr;
  if (exchange != nullptr) exchange->begin(run_.id.step);
  for (const Action& action : run_.schedule.per_worker[static_cast<std::size_t>(worker_)]) run(action);
  if (run_.training) finish_gradients();
  if (exchange != nullptr) exchange_gradients();
  if (run_.training && parts_.config.loss_scaling) look_for_non_finite();
  if (run_.then) do_then();
  if (run_.only) return;  // the next action need not wait for this one's tensors to be encoded
  for (const auto& cut : parts_.cuts) cut->finish_encoding();
}

// Nothing of an audit is recorded: gradients are taken from the parameters after each micro-batch.
std::vector<Action> WorkerRun::actions_of(int j) const {
  std::vector<Action> actions;
  if (run_.audit != nullptr) return actions;
  for (const Action& action : run_.schedule.per_worker[static_cast<std::size_t>(worker_)]) {
    if (action.stage == j) actions.push_back(action);
  }
  return actions;
}

void WorkerRun::run(const Action& action) {
  switch (action.kind) {
    case Kind::kForward: return forward(action);
    case Kind::kBackward:
    case Kind::kBackwardInput: return backward(action);
    case Kind::kBackwardWeights: return backward_weights(action);
  }
}

void WorkerRun::finish_gradients() {
  for (std::size_t j = 0; j < parts_.stages.size(); ++j) {
    if (!has(j)) continue;
    for (const auto& layer : parts_.stages[j].layers()) {
      layer->finish_gradients();
      if (parts_.config.exchange == nullptr || run_.audit != nullptr) continue;
      for (const auto& [name, parameter] : layer->late_gradients()) parts_.config.exchange->ready(parameter);
    }
  }
}

void WorkerRun::do_then() {
  const Span span(times_.optimizer, parts_.config.tracer, worker_, "optimizer", run_.id.step);
  std::vector<Stage*> own;
  for (std::size_t j = 0; j < parts_.stages.size(); ++j) {
    if (has(j)) own.push_back(&parts_.stages[j]);
  }
  run_.then(worker_, own);
}

void WorkerRun::look_for_non_finite() {
  for (std::size_t j = 0; j < parts_.stages.size(); ++j) {
    if (has(j) && !parts_.stages[j].gradients_finite()) run_.non_finite = true;
  }
}

ForwardContext WorkerRun::context(const Batch& micro_batch) const {
  ForwardContext at;
  at.seed = parts_.config.seed;
  at.epoch = run_.id.epoch;
  at.step = run_.id.step;
  at.samples = micro_batch.samples;
  at.side = micro_batch.side;
  at.training = run_.training;
  return at;
}

// Activations that are kept by sample must not depend on the others of their micro-batch, not even in the order of a sum: each sample is
// computed by itself, and not at all where the receiver has what would come of it.
void WorkerRun::forward_by_sample(const Action& action) {
  const Batch micro_batch = this->micro_batch(action.micro_batch);
  boundary::MicroBatchTensors out{run_.id.step, static_cast<std::uint32_t>(action.micro_batch), !run_.training, run_.id.measure_error, {}};
  for (std::int64_t k = 0; k < micro_batch.size(); ++k) {
    const Batch one = slice(micro_batch, {k, 1});
    const boundary::SampleKey key{boundary::sample_number(one.samples[0], !run_.training), sample_tag(parts_.config.reuse.key, one)};
    out.samples.push_back(key);
    out.tensors.emplace_back();
    if (cut(0).holds(key)) continue;
    const Span span(times_.forward, parts_.config.tracer, worker_, "forward", run_.id.step, schedule::to_string(action));
    out.tensors.back() = stage(0).evaluate(one.inputs, context(one)).at(0).detach();
  }
  const Span span(times_.wait, parts_.config.tracer, worker_, "wait", run_.id.step);
  cut(0).send(Direction::kForward, std::move(out));
}

void WorkerRun::forward(const Action& action) {
  if (action.stage == 0 && parts_.config.reuse.on) return forward_by_sample(action);
  const auto [kind, i, j] = action;
  const Batch micro_batch = this->micro_batch(i);
  Tensors tensors = j > 0 ? recv(j - 1, Direction::kForward, i) : micro_batch.inputs;
  {
    const Span span(times_.forward, parts_.config.tracer, worker_, "forward", run_.id.step, schedule::to_string(action));
    const ForwardContext at = context(micro_batch);
    const int first = parts_.config.first_trained;
    tensors = run_.training && j >= first ? stage(j).forward(live_number(i), tensors, j > first, at) : stage(j).evaluate(tensors, at);
    if (is_last(j)) finish_forward(i, tensors);
  }
  if (is_last(j)) return;
  for (auto& tensor : tensors) tensor = tensor.detach();  // the graph ends at the cut
  send(j, Direction::kForward, i, std::move(tensors));
}

// Waits only when the cut's queue is full.
void WorkerRun::send(int j, Direction direction, int i, Tensors tensors) {
  if (parts_.config.observer && run_.training) parts_.config.observer(j, direction, i, tensors);
  const Span span(times_.wait, parts_.config.tracer, worker_, "wait", run_.id.step);
  const bool frozen = !run_.training || run_.audit != nullptr;
  boundary::MicroBatchTensors sent{run_.id.step, static_cast<std::uint32_t>(i), frozen, run_.id.measure_error, std::move(tensors)};
  const auto cut_index = static_cast<std::size_t>(j);
  if (const Rates& all = rates(i); cut_index < all.size()) sent.rate = all[cut_index].of(direction);
  if (run_.audit != nullptr && i == 0 && !run_.audit->try_rates.empty()) {
    sent.try_rates = run_.audit->try_rates[2 * cut_index + static_cast<std::size_t>(direction)];
  }
  cut(j).send(direction, std::move(sent));
}

const Rates& WorkerRun::rates(int i) const {
  return run_.audit != nullptr ? run_.audit->rates[static_cast<std::size_t>(i)] : run_.id.rates;
}

void WorkerRun::take_gradients(const Action& action) const {
  if (run_.audit != nullptr) run_.audit->take(action.micro_batch, action.stage, stage(action.stage).layers());
}

Tensors WorkerRun::recv(int j, Direction direction, int i) {
  const Span span(times_.wait, parts_.config.tracer, worker_, "wait", run_.id.step);
  return cut(j).recv(direction, run_.id.step, static_cast<std::uint32_t>(i));
}

// The loss of micro-batch i, from which the backward of the last stage starts. It is the mean over the batch, so each micro-batch
// contributes its sum divided by the terms of the whole batch. Dividing by a power of two is exact, so
// the loss scale changes no digit of a gradient. Nothing here waits for the device.
void WorkerRun::finish_forward(int i, const Tensors& outputs) {
  const auto index = static_cast<std::size_t>(i);
  const torch::Tensor targets = micro_batch(i).targets;
  const bool has_graph = stage(static_cast<int>(parts_.stages.size()) - 1).has_graph(live_number(i));  // of autograd
  const bool ends_here = run_.training && (!has_graph || run_.audit != nullptr);                       // which looks at the gradients
  Tensors ends = outputs;
  for (auto& end : ends) {
    if (ends_here) end = end.detach().requires_grad_(end.is_floating_point());
  }
  const torch::AutoGradMode grad(run_.training);
  const LossResult result = parts_.loss(ends, targets.defined() ? targets.to(ends[0].device()) : targets);
  run_.losses[index] = sent_to_host(result.sum.detach());
  run_.correct[index] = sent_to_host(result.correct);
  run_.predictions[index] = result.predictions;
  if (!run_.training) return;
  const double divisor = static_cast<double>(run_.terms) / run_.id.loss_scale;
  torch::Tensor scaled = result.sum / divisor;
  if (!ends_here) {
    run_.scaled_losses[index] = std::move(scaled);
    return;
  }
  scaled.backward();
  for (const auto& end : ends) run_.loss_gradients[index].push_back(end.grad());
  if (run_.audit == nullptr) return;
  for (auto& end : ends) end = end.detach();
  run_.audit->take_loss(i, {std::move(ends), result.sum.detach(), run_.loss_gradients[index], 1 / divisor, run_.terms});
}

void WorkerRun::backward(const Action& action) {
  const auto [kind, i, j] = action;
  Tensors of_inputs;
  const Tensors gradients = is_last(j) ? std::move(run_.loss_gradients[static_cast<std::size_t>(i)]) : recv(j, Direction::kBackward, i);
  {
    const Span span(times_.backward, parts_.config.tracer, worker_, "backward", run_.id.step, schedule::to_string(action));
    GradientHooks* const hooks = hooks_for(action);
    if (hooks != nullptr) hooks->arm();
    of_inputs = stage_backward(action, gradients);
    if (hooks != nullptr) hooks->finish();
  }
  if (j > parts_.config.first_trained) send(j - 1, Direction::kBackward, i, std::move(of_inputs));
  if (kind == Kind::kBackward) take_gradients(action);
}

void WorkerRun::backward_weights(const Action& action) {
  const Span span(times_.backward, parts_.config.tracer, worker_, "backward", run_.id.step, schedule::to_string(action));
  GradientHooks* const hooks = hooks_for(action);
  if (hooks != nullptr) hooks->arm();
  stage(action.stage).backward_weights(live_number(action.micro_batch));
  if (hooks != nullptr) hooks->finish();
  take_gradients(action);
}

// Those of the stage if this action completes its gradients: micro-batches come in ascending order, so the last one to be released does.
GradientHooks* WorkerRun::hooks_for(const Action& action) const {
  if (run_.audit != nullptr) return nullptr;
  const bool releases = schedule::info(action.kind).live < 0;
  const bool completes = releases && static_cast<std::size_t>(action.micro_batch) + 1 == run_.chunks.size();
  return completes && !parts_.hooks.empty() ? parts_.hooks[static_cast<std::size_t>(action.stage)].get() : nullptr;
}

// The last stage goes back from the loss: one run of autograd instead of two.
Tensors WorkerRun::stage_backward(const Action& action, const Tensors& gradients) {
  const auto [kind, i, j] = action;
  const bool split = kind == Kind::kBackwardInput;
  if (is_last(j) && run_.scaled_losses[static_cast<std::size_t>(i)].defined()) {
    const torch::Tensor loss = std::exchange(run_.scaled_losses[static_cast<std::size_t>(i)], {});
    return split ? stage(j).backward_input_from_loss(live_number(i), loss) : stage(j).backward_from_loss(live_number(i), loss);
  }
  return split ? stage(j).backward_input(live_number(i), gradients) : stage(j).backward(live_number(i), gradients);
}

// Tensors for other workers are on their way by now.
void WorkerRun::exchange_gradients() {
  const Span span(times_.all_reduce, parts_.config.tracer, worker_, "all_reduce", run_.id.step);
  times_.all_reduce_bytes = parts_.config.exchange->finish();
}

}  // namespace epipe::pipeline
