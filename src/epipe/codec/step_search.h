#pragma once

#include <functional>
#include <span>
#include <vector>

#include "epipe/codec/kernels/kernels.h"
#include "epipe/codec/planes.h"
#include "epipe/codec/token_stream.h"
#include "epipe/codec/token_tables.h"

// Finds the step of the quantizer on a sample of the tensor.
namespace epipe::codec {

// Where rounding goes up, in steps: to 1 at `threshold`, to the next level `offset` before it. At 0.5 each it is to the nearest; later
// is better because the larger of two levels costs more bits.
struct Rounding {
  float threshold = 0.62F;
  float offset = 0.44F;
};

kernels::DeadZone dead_zone(float step, const Rounding& rounding);

inline constexpr std::size_t kSearchSymbols = 1U << 16U;  // to find a step
inline constexpr std::size_t kChoiceSymbols = 1U << 19U;  // to choose between forms

// Some of a tensor's symbols, spread evenly: all of them when there are few.
class Sample {
 public:
  Sample(const Planes& planes, std::span<const float> x, const kernels::Kernels& kernels, std::size_t symbols = kSearchSymbols);

  // Sets the rounding to what pays at this step: a level goes up where that takes off more error than its bits are worth.
  void adapt(float step);
  const Rounding& rounding() const { return rounding_; }

  // About how many bits the tokens of the whole tensor take with this step.
  double bits(float step) const;
  // About how large the sum of (x - x')^2 over the whole tensor is.
  double squared_error(float step) const;
  // Per slot, as fit_tables() takes them.
  std::vector<Shift> shifts(float step) const;

 private:
  template <typename Each>
  void for_chunks(float step, Each&& each) const;
  void keep(const Planes& planes, std::size_t first, std::size_t units, std::span<const float> x);

  struct Part {
    Chunk chunk;
    std::vector<float> y;
  };
  Planes planes_;
  const kernels::Kernels* kernels_;
  std::vector<Part> parts_;
  Rounding rounding_;
  double scale_ = 1;    // symbols of the tensor per symbol of the sample
  double settled_ = 1;  // the share of the sample's symbols that have a row before them, where that matters
};

struct StepRange {
  float floor;
  float ceiling;
  float guess;  // where to start
};

// The step at which a monotone function of it meets `target`, to about half a percent of the function's value; the nearer end of the
// range where it does not, the floor where the function says nothing. The function and the target are positive.
float solve_step(const std::function<double(float)>& function, double target, const StepRange& range);

}  // namespace epipe::codec
