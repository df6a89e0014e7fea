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

// An audit: the gradients of two small micro-batches, a and b, at the training's rates, and then with one cut and direction after the other
// at so high a rate that the change shows the effect of its coding. Nothing is committed.
//
//   micro-batch   0          1          2             3             4                   5   ...
//   samples       a          b          a             b             a                   b
//   rates         present    present    one is high   one is high   two are high        ...
//   compared      gradients  ^          with 0        with 1        with 2              with 3
//
// The order must begin with the tensor that crosses last. All tensors after the changing one are then at a high rate already: at a coarse
// rate they would be rounded differently, and that would count as well.
namespace epipe::session {

inline constexpr double kLeastRate = 0.03;  // bits per value that a coordinator may ask for
inline constexpr double kMostRate = 16;
inline constexpr std::size_t kMostTriedRates = 8;
// Whether a rate is allowed: one within the range, or 0 for the rate in the codec's spec.
bool is_rate(double rate);
// Throws std::invalid_argument if any rate is not allowed.
void check_rates(const pipeline::Rates& rates);

// How many micro-batches of an audit fit at once: they are small, and a server knows about `auto` when it admits the run.
int most_at_once(const pipeline::PipelineConfig& config);

// What a and b lose in one pass, per term; known where the last stage is.
struct PassLosses {
  std::array<double, 2> loss{};
  std::array<double, 2> added{};  // by the coding that the pass before had and this one has not: loss_comparisons.h; 0 in the first pass
};
inline constexpr std::size_t kPassNumbers = 4;

// Consecutive micro-batches of an audit that run together.
struct AuditPart {
  std::uint32_t first = 0;                   // the number of the first one; 0 begins an audit
  bool last = false;                         // of the audit
  std::vector<std::vector<double>> rates{};  // by micro-batch, then by 2 * cut + direction
  std::vector<std::vector<double>> tried{};  // by 2 * cut + direction: rates at which micro-batch `first` is measured; empty: none
};

// Sums over all parameters of a stage, with gradients scaled as by the optimizer; the part that a tied head adds to the embedding's
// gradient is summed in the head's stage, without its product with the other part. x is a gradient in the first comparison, and in the
// others the change caused by coding at one cut and direction; g is the gradient without that change.
struct AuditSums {
  double cross = 0;   // <x_a, x_b>: unbiased estimate of the squared norm of the common part of a and b
  double square = 0;  // (|x_a|^2 + |x_b|^2) / 2
  double along = 0;   // (<x_a, g_b> + <x_b, g_a>) / 2

  AuditSums& operator+=(const AuditSums& other);
};
inline constexpr std::size_t kAuditNumbers = 3;

struct AuditPartResult {
  pipeline::StepResult step;
  std::vector<std::vector<double>> curves{};  // by 2 * cut + direction: relative errors at the tried rates, if the sender is here
  std::vector<std::vector<double>> sums{};    // in the last part: by comparison, kAuditNumbers per stage, 0 for remote stages
  std::vector<std::vector<double>> losses{};  // in the last part, where the last stage is: by pass, kPassNumbers
  bool non_finite = false;                    // a gradient or a loss holds NaN or Inf: the sums are meaningless
};

// Takes the gradients of an audit and compares them. One thread per stage.
class GradientComparisons {
 public:
  using Layers = std::vector<std::shared_ptr<layer::Layer>>;
  // The optimizer's factor for a gradient; undefined: 1. See Optimizer::scale().
  using Scale = std::function<torch::Tensor(int stage, const std::string& name, const torch::Tensor& gradient)>;
  GradientComparisons(std::size_t stages, Scale scale) : scale_(std::move(scale)), stages_(stages) {}

  // Takes the gradients of one stage away from its parameters. Numbers must ascend.
  void take(std::uint32_t micro_batch, int stage, const Layers& layers);
  // By comparison and stage, as in AuditPartResult.
  std::vector<std::vector<double>> sums(std::size_t comparisons) const;

 private:
  using Gradients = std::vector<std::pair<std::string, torch::Tensor>>;
  struct OfStage {
    std::array<Gradients, 2> gradients;  // the last gradients of a and of b
    Gradients change_of_a;
    std::vector<torch::Tensor> sums;  // by comparison: kAuditNumbers, on the stage's device
  };
  torch::Tensor compare(int stage, const Gradients& a, const Gradients& b) const;

  Scale scale_;
  std::vector<OfStage> stages_;
};

// The sums of all stages, in their order, independent of where the stages are. Reads only the sender's stages, given by `own`; throws
// std::invalid_argument for values that no honest process sends.
std::vector<std::vector<AuditSums>> read_sums(const std::vector<std::vector<double>>& numbers, const std::vector<bool>& own);
// Throws std::invalid_argument for losses that no audit of so many passes has.
std::vector<PassLosses> read_losses(const std::vector<std::vector<double>>& numbers, std::size_t passes);

}  // namespace epipe::session
