#include "epipe/session/reducer.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace epipe::session {
namespace {

const void* identity(const torch::Tensor& parameter) { return parameter.unsafeGetTensorImpl(); }

// Roughly in the order in which a backward completes their gradients.
std::vector<torch::Tensor> parameters_backwards(const std::vector<std::shared_ptr<layer::Layer>>& layers) {
  std::vector<torch::Tensor> all;
  for (const auto& layer : layers) {
    for (const auto& parameter : layer->parameters()) {
      if (parameter.requires_grad()) all.push_back(parameter);
    }
  }
  std::reverse(all.begin(), all.end());
  return all;
}

}  // namespace

Reducer::Reducer(std::unique_ptr<transport::Group> replicas, std::vector<std::shared_ptr<layer::Layer>> layers, std::size_t bucket_bytes,
                 Tracer* tracer)
    : replicas_(std::move(replicas)), layers_(std::move(layers)), tracer_(tracer) {
  make_buckets(bucket_bytes);
  thread_ = std::thread([this] { run(); });
}

Reducer::~Reducer() { leave(); }

void Reducer::make_buckets(std::size_t bucket_bytes) {
  std::size_t bytes = 0;
  for (const auto& parameter : parameters_backwards(layers_)) {
    const bool other_type = !buckets_.empty() && buckets_.back().parameters[0].scalar_type() != parameter.scalar_type();
    if (buckets_.empty() || bytes >= bucket_bytes || other_type) {
      buckets_.emplace_back();
      bytes = 0;
    }
    if (!bucket_of_.emplace(identity(parameter), buckets_.size() - 1).second) {
      throw std::invalid_argument("a parameter of two layers cannot be trained by replicas");
    }
    buckets_.back().parameters.push_back(parameter);
    bytes += parameter.nbytes();
  }
  for (Bucket& bucket : buckets_) {
    auto size = static_cast<std::int64_t>(bucket.parameters.size());
    for (const auto& parameter : bucket.parameters) size += parameter.numel();
    bucket.memory = torch::zeros({size}, torch::TensorOptions(bucket.parameters[0].scalar_type()).device(replicas_->device()));
  }
}

void Reducer::begin(std::uint64_t step) {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  if (left_) throw ReplicaLost("the exchange of gradients with the other replicas was left");
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters.size();
  sent_bytes_ = 0;
  made_.clear();
  step_ = step;
  turn_ = 0;
  finishing_ = false;
  begun_ = true;
}

void Reducer::ready(const torch::Tensor& parameter) {
  const std::size_t index = bucket_of_.at(identity(parameter));
  const std::lock_guard lock(mutex_);
  if (--buckets_[index].missing > 0) return;
  buckets_[index].ready = boundary::StreamEvent({parameter});
  changed_.notify_all();
}

std::uint64_t Reducer::finish() {
  std::unique_lock lock(mutex_);
  finishing_ = true;
  if (!buckets_.empty()) finished_ = boundary::StreamEvent(buckets_[0].parameters);
  changed_.notify_all();
  changed_.wait(lock, [this] { return failure_ || left_ || turn_ > buckets_.size(); });
  begun_ = false;
  if (failure_) std::rethrow_exception(failure_);
  if (left_) throw ReplicaLost("the exchange of gradients with the other replicas was left");
  boundary::keep_for_current_stream(std::exchange(made_, {}));
  return sent_bytes_;
}

std::uint64_t Reducer::contribute_nothing(std::uint64_t step) {
  begin(step);
  for (const Bucket& bucket : buckets_) {
    for (const torch::Tensor& parameter : bucket.parameters) {
      parameter.mutable_grad() = torch::Tensor();
      ready(parameter);
    }
  }
  return finish();
}

// A running sum ends when the others reach it, or leave as well: nothing else they do depends on this replica.
void Reducer::leave() {
  {
    const std::lock_guard lock(mutex_);
    left_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  replicas_ = nullptr;
}

bool Reducer::something_to_do() const {
  if (!begun_ || failure_ || turn_ > buckets_.size()) return false;
  return turn_ < buckets_.size() ? buckets_[turn_].missing == 0 : finishing_;
}

// The reducer's thread.
void Reducer::run() {
  at::set_num_threads(1);
  const torch::NoGradGuard no_grad;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return left_ || something_to_do(); });
    if (left_) return;
    const std::size_t turn = turn_;
    const std::uint64_t step = step_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      sum(turn, step);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    ++turn_;
    changed_.notify_all();
  }
}

void Reducer::sum(std::size_t turn, std::uint64_t step) {
  const bool statistics = turn == buckets_.size();
  double seconds = 0;
  const Span span(seconds, tracer_, kReducerTrack, "all_reduce", step, statistics ? "statistics" : fmt::format("bucket {}", turn));
  const boundary::OwnStream stream(buckets_.empty() ? torch::kCPU : buckets_[0].parameters[0].device());
  statistics ? sum_statistics() : sum_bucket(buckets_[turn]);
  stream.synchronize();  // so that the worker's stream can use the sums
}

std::vector<torch::Tensor> Reducer::gradients(const Bucket& bucket) {
  std::vector<torch::Tensor> all;
  for (const auto& parameter : bucket.parameters) all.push_back(parameter.grad());
  return all;
}

void Reducer::sum_bucket(Bucket& bucket) {
  bucket.ready.take(gradients(bucket));
  bucket.memory.zero_();
  const auto count = static_cast<std::int64_t>(bucket.parameters.size());
  torch::Tensor flags = bucket.memory.narrow(0, bucket.memory.numel() - count, count);
  torch::Tensor present = torch::zeros({count}, flags.scalar_type());
  std::int64_t begin = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    const torch::Tensor& parameter = bucket.parameters[static_cast<std::size_t>(k)];
    if (parameter.grad().defined()) {
      bucket.memory.narrow(0, begin, parameter.numel()).copy_(parameter.grad().reshape(-1));
      present[k] = 1;
    }
    begin += parameter.numel();
  }
  flags.copy_(present);
  add_sum(bucket.memory);
  present.copy_(flags);
  begin = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    torch::Tensor& parameter = bucket.parameters[static_cast<std::size_t>(k)];
    const torch::Tensor total = bucket.memory.narrow(0, begin, parameter.numel()).view(parameter.sizes());
    begin += parameter.numel();
    if (present[k].item<double>() == 0) continue;
    if (!parameter.grad().defined()) {
      parameter.mutable_grad() = torch::empty_like(parameter);
      made_.push_back(parameter.grad());
    }
    parameter.mutable_grad().copy_(total);
  }
}

void Reducer::sum_statistics() {
  if (!buckets_.empty()) finished_.take(buckets_[0].parameters);
  std::vector<torch::Tensor> totals = {torch::empty({0}, torch::kFloat64)};
  for (const auto& layer : layers_) totals.push_back(layer->batch_totals());
  torch::Tensor all = torch::cat(totals).to(replicas_->device());
  add_sum(all);
  all = all.cpu();
  std::int64_t begin = 0;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const std::int64_t size = totals[l + 1].numel();
    if (size > 0) layers_[l]->set_batch_totals(all.narrow(0, begin, size));
    begin += size;
  }
}

void Reducer::add_sum(torch::Tensor& x) {
  if (x.numel() == 0) return;
  try {
    replicas_->all_reduce_sum(x);
  } catch (const transport::ConnectionLost& lost) {
    throw ReplicaLost(lost.what());
  }
  // Parts to their owners, sums back: see transport/c10d/backend.h.
  const auto others = static_cast<std::uint64_t>(replicas_->size() - 1);
  const auto part = (static_cast<std::uint64_t>(x.numel()) + others) / (others + 1);
  sent_bytes_ += 2 * others * part * x.element_size();
}

}  // namespace epipe::session
