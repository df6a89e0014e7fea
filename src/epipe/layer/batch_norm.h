#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <memory>
#include <optional>
#include <vector>

#include "epipe/layer/layer.h"

namespace epipe::layer {

// Normalizes by the micro-batch, as BatchNorm does by the batch, and updates the running statistics once per batch with the aggregate of
// its micro-batches, as if they had been one; if nothing is pipelined, with every forward. If its weight is frozen it normalizes as in
// evaluation and keeps its statistics. weight, bias, running_mean, running_var, num_batches_tracked
class DeferredBatchNorm : public torch::nn::Module, public BatchStatistics {
 public:
  explicit DeferredBatchNorm(std::int64_t channels, double eps = 1e-5, double momentum = 0.1);
  // Uses the tensors of another module, without copying them. Weight and bias may be undefined.
  struct Shared {
    torch::Tensor weight;
    torch::Tensor bias;
    torch::Tensor running_mean;
    torch::Tensor running_var;
    torch::Tensor num_batches_tracked;
  };
  DeferredBatchNorm(const Shared& tensors, double eps, double momentum);
  torch::Tensor forward(const torch::Tensor& x, const ForwardContext& at);

  void commit_batch() override { commit_together({this}); }
  void discard_batch() override;
  torch::Tensor batch_totals() const override;  // sums, sums of squares, count
  void set_batch_totals(const torch::Tensor& totals) override;

  // The statistics of a micro-batch, as the normalization computed them.
  struct Seen {
    torch::Tensor mean;
    torch::Tensor inverse_deviation;
    std::int64_t count;
  };
  // The statistics of the batch so far, by micro-batch, for code that replays a forward without calling it.
  const std::vector<Seen>& seen() const { return seen_; }
  void see(const Seen& micro_batch);
  void unsee();  // removes the last one

  // commit_batch() of each, with bit-identical results, in a few operations over all of them instead of hundreds of tiny ones.
  static void commit_together(const std::vector<DeferredBatchNorm*>& norms);

  torch::Tensor weight;
  torch::Tensor bias;
  torch::Tensor running_mean;
  torch::Tensor running_var;
  torch::Tensor num_batches_tracked;

 private:
  // Totals over the values of a batch, by channel, in float64.
  struct Totals {
    torch::Tensor sum;
    torch::Tensor square_sum;
  };

  using Norms = std::vector<const DeferredBatchNorm*>;
  Seen normalize(const torch::Tensor& x, torch::Tensor& y) const;
  bool commits_with(const DeferredBatchNorm& other) const;
  static Totals totals_of(const Norms& norms);  // one vector for all of them
  static void commit_alike(const Norms& norms);

  double eps_;
  double momentum_;
  std::vector<Seen> seen_;       // by micro-batch of the batch so far
  std::optional<Totals> given_;  // set by set_batch_totals(), instead of seen_
  std::int64_t count_ = 0;       // values per channel so far
};

// The batch norms in these layers.
std::vector<DeferredBatchNorm*> batch_norms(const std::vector<std::shared_ptr<Layer>>& layers);
// commit_batch() of each layer, with bit-identical results.
void commit_batch(const std::vector<std::shared_ptr<Layer>>& layers);

}  // namespace epipe::layer
