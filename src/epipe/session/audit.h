#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "epipe/layer/batch.h"
#include "epipe/pipeline/pipeline.h"

// An audit: the gradients of two small micro-batches, a and b, at the rates of the training, and then with one cut and direction after the
// other at a rate so high that what changes is what its coding did. Nothing is committed.
//
//   micro-batch   0          1          2             3             4                   5   ...
//   samples       a          b          a             b             a                   b
//   rates         present    present    one is high   one is high   two are high        ...
//   compared      gradients  ^          with 0        with 1        with 2              with 3
//
// Whoever chooses the order begins with the tensor that crosses last. What comes after the one that changes is then at a high rate already:
// at a coarse one it would be rounded anew, and that would count as well.
namespace epipe::session {

inline constexpr double kLeastRate = 0.03;  // bits per value that a coordinator may ask for
inline constexpr double kMostRate = 16;
inline constexpr std::size_t kMostTriedRates = 8;
// Whether a rate may be asked for: one of the range, or 0 for what the codec's spec says.
bool is_rate(double rate);
// Throws std::invalid_argument where one is not.
void check_rates(const pipeline::Rates& rates);

// How many micro-batches of an audit a run has room for: they are small, and a server knows of `auto` when it admits one.
int most_at_once(const pipeline::PipelineConfig& config);

// Consecutive micro-batches of an audit that are run together.
struct AuditPart {
  std::uint32_t first = 0;                    // the number of its first one; 0 begins an audit
  bool last = false;                          // of the audit
  std::vector<std::vector<double>> rates{};   // by micro-batch, then by 2 * cut + direction
  std::vector<std::vector<double>> tried{};   // by 2 * cut + direction: rates that micro-batch `first` is measured at; empty: none
};

// Over all parameters of a stage, in units of what the optimizer makes of a gradient. x is a gradient in the first comparison, and in the
// others what coding at one cut and direction adds to it; g is the gradient without that.
struct AuditSums {
  double cross = 0;   // <x_a, x_b>: without bias, the squared norm of what a and b have in common
  double square = 0;  // (|x_a|^2 + |x_b|^2) / 2
  double along = 0;   // (<x_a, g_b> + <x_b, g_a>) / 2

  AuditSums& operator+=(const AuditSums& other);
};
inline constexpr std::size_t kAuditNumbers = 3;

struct AuditPartResult {
  pipeline::StepResult step;
  std::vector<std::vector<double>> curves{};  // by 2 * cut + direction: relative errors at the tried rates, where the sender is here
  std::vector<std::vector<double>> sums{};    // of the last part: by comparison, kAuditNumbers for each stage, 0 of those elsewhere
  bool non_finite = false;                    // a gradient holds NaN or Inf: the sums mean nothing
};

// Takes the gradients of an audit and compares them. One thread for each stage.
class GradientComparisons {
 public:
  using Layers = std::vector<std::shared_ptr<layer::Layer>>;
  // What the optimizer multiplies a gradient by; undefined: 1. See Optimizer::scale().
  using Scale = std::function<torch::Tensor(int stage, const std::string& name, const torch::Tensor& gradient)>;
  GradientComparisons(std::size_t stages, Scale scale) : scale_(std::move(scale)), stages_(stages) {}

  // The gradients of one stage, which are gone from its parameters afterwards. Numbers ascend.
  void take(std::uint32_t micro_batch, int stage, const Layers& layers);
  // By comparison and stage, as AuditPartResult has them.
  std::vector<std::vector<double>> sums(std::size_t comparisons) const;

 private:
  using Gradients = std::vector<std::pair<std::string, torch::Tensor>>;
  struct OfStage {
    std::array<Gradients, 2> gradients;  // the last ones of a and of b
    Gradients change_of_a;
    std::vector<torch::Tensor> sums;  // by comparison: kAuditNumbers, on the stage's device
  };
  torch::Tensor compare(int stage, const Gradients& a, const Gradients& b) const;

  Scale scale_;
  std::vector<OfStage> stages_;
};

// The sums of all stages, in their order: the same wherever the stages are. Throws std::invalid_argument for what no honest process says
// of its stages, which are those in `own`; others are not looked at.
std::vector<std::vector<AuditSums>> read_sums(const std::vector<std::vector<double>>& numbers, const std::vector<bool>& own);

}  // namespace epipe::session
