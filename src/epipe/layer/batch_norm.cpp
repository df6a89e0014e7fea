#include "epipe/layer/batch_norm.h"

#include <algorithm>
#include <tuple>

// Statistics of several layers are computed in one vector. Each element must be rounded independently of its position: no fused
// multiply-add, no reduction. Then the result does not depend on which layers share a stage.
namespace epipe::layer {
namespace {

using Norms = std::vector<const DeferredBatchNorm*>;

template <typename Member>
torch::Tensor joined(const Norms& norms, const Member& member) {
  std::vector<torch::Tensor> parts;
  for (const auto* norm : norms) parts.push_back(member(*norm));
  return torch::cat(parts).to(torch::kFloat64);
}

std::vector<torch::Tensor> split(const torch::Tensor& joined, const Norms& norms) {
  std::vector<std::int64_t> sizes;
  for (const auto* norm : norms) sizes.push_back(norm->running_mean.numel());
  return joined.split_with_sizes(sizes);
}

template <typename Member>
std::vector<at::Scalar> scalars(const Norms& norms, const Member& member) {
  std::vector<at::Scalar> all;
  for (const auto* norm : norms) all.emplace_back(static_cast<double>(member(*norm)));
  return all;
}

// running = running (1 - momentum) + now momentum
void move_towards(const std::vector<torch::Tensor>& running, const torch::Tensor& now, double momentum, const Norms& norms) {
  const auto share = (now * momentum).to(running[0].scalar_type());
  at::_foreach_mul_(running, 1 - momentum);
  at::_foreach_add_(running, split(share, norms), 1);
}

}  // namespace

DeferredBatchNorm::DeferredBatchNorm(std::int64_t channels, double eps, double momentum)
    : weight(register_parameter("weight", torch::ones({channels}))),
      bias(register_parameter("bias", torch::zeros({channels}))),
      running_mean(register_buffer("running_mean", torch::zeros({channels}))),
      running_var(register_buffer("running_var", torch::ones({channels}))),
      num_batches_tracked(register_buffer("num_batches_tracked", torch::zeros({}, torch::kInt64))),
      eps_(eps),
      momentum_(momentum) {}

// Not registered: the owner of the tensors has registered them.
DeferredBatchNorm::DeferredBatchNorm(const Shared& tensors, double eps, double momentum)
    : weight(tensors.weight),
      bias(tensors.bias),
      running_mean(tensors.running_mean),
      running_var(tensors.running_var),
      num_batches_tracked(tensors.num_batches_tracked),
      eps_(eps),
      momentum_(momentum) {}

torch::Tensor DeferredBatchNorm::forward(const torch::Tensor& x, const ForwardContext& at) {
  const bool frozen = weight.defined() && !weight.requires_grad();  // behaves as in evaluation, statistics included
  if (!at.training || frozen) return torch::batch_norm(x, weight, bias, running_mean, running_var, false, momentum_, eps_, false);
  if (!at.pipelined) {
    num_batches_tracked.add_(1);
    return torch::batch_norm(x, weight, bias, running_mean, running_var, true, momentum_, eps_, /*cudnn_enabled=*/true);
  }
  torch::Tensor y;
  const Seen seen = normalize(x, y);
  if (!at.recompute) see(seen);
  return y;
}

void DeferredBatchNorm::see(const Seen& micro_batch) {
  count_ += micro_batch.count;
  seen_.push_back(micro_batch);
}

void DeferredBatchNorm::unsee() {
  count_ -= seen_.back().count;
  seen_.pop_back();
}

// Uses cuDNN where PyTorch would: it is faster in float32.
DeferredBatchNorm::Seen DeferredBatchNorm::normalize(const torch::Tensor& x, torch::Tensor& y) const {
  const std::int64_t count = x.numel() / x.size(1);
  torch::Tensor mean, inverse_deviation, reserved;
  if (x.is_cuda() && x.scalar_type() == torch::kFloat32 && x.dim() == 4) {
    std::tie(y, mean, inverse_deviation, reserved) = torch::cudnn_batch_norm(x, weight, bias, {}, {}, true, momentum_, eps_);
  } else {
    std::tie(y, mean, inverse_deviation) = torch::native_batch_norm(x, weight, bias, {}, {}, true, momentum_, eps_);
  }
  return {mean.detach(), inverse_deviation.detach(), count};
}

bool DeferredBatchNorm::commits_with(const DeferredBatchNorm& other) const {
  return eps_ == other.eps_ && momentum_ == other.momentum_ && seen_.size() == other.seen_.size() &&
         given_.has_value() == other.given_.has_value() && running_mean.device() == other.running_mean.device();
}

void DeferredBatchNorm::commit_together(const std::vector<DeferredBatchNorm*>& norms) {
  const torch::NoGradGuard no_grad;
  std::vector<DeferredBatchNorm*> left;
  std::copy_if(norms.begin(), norms.end(), std::back_inserter(left), [](const auto* norm) { return norm->count_ > 0; });
  while (!left.empty()) {
    const DeferredBatchNorm& first = *left[0];
    const auto others = std::stable_partition(left.begin(), left.end(), [&](const auto* norm) { return norm->commits_with(first); });
    commit_alike({left.begin(), others});
    std::for_each(left.begin(), others, [](auto* norm) { norm->discard_batch(); });
    left.erase(left.begin(), others);
  }
}

DeferredBatchNorm::Totals DeferredBatchNorm::totals_of(const Norms& norms) {
  if (norms[0]->given_) {
    return {joined(norms, [](const auto& n) { return n.given_->sum; }), joined(norms, [](const auto& n) { return n.given_->square_sum; })};
  }
  Totals totals;
  for (std::size_t i = 0; i < norms[0]->seen_.size(); ++i) {
    const auto counts = scalars(norms, [i](const auto& n) { return n.seen_[i].count; });
    const auto mean = joined(norms, [i](const auto& n) { return n.seen_[i].mean; });
    const auto inverse_deviation = joined(norms, [i](const auto& n) { return n.seen_[i].inverse_deviation; });
    const auto square = (inverse_deviation * inverse_deviation).reciprocal() - norms[0]->eps_ + mean * mean;
    at::_foreach_mul_(split(mean, norms), counts);
    at::_foreach_mul_(split(square, norms), counts);
    totals.sum = i == 0 ? mean : totals.sum + mean;
    totals.square_sum = i == 0 ? square : totals.square_sum + square;
  }
  return totals;
}

void DeferredBatchNorm::commit_alike(const Norms& norms) {
  const auto [mean, square] = totals_of(norms);
  const auto counts = scalars(norms, [](const auto& n) { return n.count_; });
  at::_foreach_div_(split(mean, norms), counts);
  at::_foreach_div_(split(square, norms), counts);
  const auto variance = (square - mean * mean).clamp_min(0);
  // The running variance is the unbiased one, as in PyTorch.
  at::_foreach_mul_(split(variance, norms), scalars(norms, [](const auto& n) {
                      return n.count_ > 1 ? static_cast<double>(n.count_) / static_cast<double>(n.count_ - 1) : 1.0;
                    }));
  std::vector<torch::Tensor> means, variances, batches;
  for (const auto* norm : norms) {
    means.push_back(norm->running_mean);
    variances.push_back(norm->running_var);
    batches.push_back(norm->num_batches_tracked);
  }
  move_towards(means, mean, norms[0]->momentum_, norms);
  move_towards(variances, variance, norms[0]->momentum_, norms);
  at::_foreach_add_(batches, 1);
}

void DeferredBatchNorm::discard_batch() {
  seen_.clear();
  given_.reset();
  count_ = 0;
}

torch::Tensor DeferredBatchNorm::batch_totals() const {
  if (count_ == 0) return torch::zeros({2 * running_mean.numel() + 1}, torch::kFloat64);
  const torch::NoGradGuard no_grad;
  const Totals totals = totals_of({this});
  return torch::cat({totals.sum.cpu(), totals.square_sum.cpu(), torch::full({1}, static_cast<double>(count_), torch::kFloat64)});
}

void DeferredBatchNorm::set_batch_totals(const torch::Tensor& totals) {
  const std::int64_t channels = running_mean.numel();
  const auto here = totals.to(running_mean.device(), torch::kFloat64, false, /*copy=*/true);
  given_ = Totals{here.narrow(0, 0, channels), here.narrow(0, channels, channels)};
  seen_.clear();
  count_ = totals[2 * channels].item<std::int64_t>();
}

std::vector<DeferredBatchNorm*> batch_norms(const std::vector<std::shared_ptr<Layer>>& layers) {
  std::vector<DeferredBatchNorm*> norms;
  for (const auto& layer : layers) {
    for (const auto& module : layer->modules(/*include_self=*/false)) {
      if (auto* const norm = dynamic_cast<DeferredBatchNorm*>(module.get())) norms.push_back(norm);
    }
  }
  return norms;
}

void commit_batch(const std::vector<std::shared_ptr<Layer>>& layers) {
  DeferredBatchNorm::commit_together(batch_norms(layers));
  for (const auto& layer : layers) layer->commit_batch();  // batch norms have nothing left to commit
}

}  // namespace epipe::layer
