#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "epipe/layer/gathered_batch.h"
#include "epipe/layer/layer.h"

namespace epipe::pipeline {

// The trained parameters of one stage where gradients are applied one step late (PipeDream-2BW): u_k are the weights after the gradients of
// steps 0 to k-1, forward and backward of step k use u_{k-1}, those of step 0 u_0, and u_{k+1} is u_k with the gradients of step k. So two
// versions and the gradients of two steps are all there ever is.
//
//   newest, previous     tensors of their own: what an optimizer does to one is no change of the parameter, as autograd counts them
//   the parameter        shows the values of one of the two, and gathers the gradients of one step
//
// One thread at a time.
class ParameterVersions {
 public:
  explicit ParameterVersions(std::vector<std::shared_ptr<layer::Layer>> layers);

  struct Newest {
    std::string name;       // in full
    torch::Tensor version;  // for an optimizer: newest values, and the gradients of the step that was completed
  };
  const std::vector<Newest>& newest() const { return newest_; }
  // By full name; the versions' own tensors.
  std::vector<std::pair<std::string, torch::Tensor>> previous() const;

  // Weights were given, and this many steps are done: whatever was under way is gone.
  void begin(std::uint64_t steps_done);
  // From now on the parameters are those of this step and gather its gradients. Throws std::logic_error for a step that is not one of the
  // two that may be under way.
  void use(std::uint64_t step);
  // All forwards of a step are done.
  void gather_batch(std::uint64_t step);
  // All backwards of a step are done: newest() has its gradients.
  void complete(std::uint64_t step);
  // Before an optimizer updates newest() with the gradients of the completed step.
  void advance();
  // After it: the statistics of the batch become part of the layers.
  void commit_batch();
  // The parameters are the newest ones; nothing is under way.
  void settle();
  // The layers' tensors were laid out anew.
  void follow_layout();

 private:
  struct Open {
    std::uint64_t step = 0;
    std::vector<torch::Tensor> gradients{};  // of a step whose turn it is not
    layer::GatheredBatch batch{};
  };
  void show(bool previous);
  void put_gradients_away();
  Open* find(std::uint64_t step);

  std::vector<std::shared_ptr<layer::Layer>> layers_;
  std::vector<torch::Tensor> parameters_;  // the layers' own
  std::vector<Newest> newest_;
  std::vector<torch::Tensor> previous_;
  std::vector<Open> open_;                    // under way, at most two
  std::optional<std::uint64_t> in_use_;       // its gradients are with the parameters
  std::optional<layer::GatheredBatch> done_;  // of the completed step
  std::uint64_t version_ = 0;                 // newest is u_version
  bool shows_previous_ = false;
};

}  // namespace epipe::pipeline
