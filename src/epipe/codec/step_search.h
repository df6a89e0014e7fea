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

kernels::DeadZone dead_zone(float step);

inline constexpr std::size_t kSearchSymbols = 1U << 16U;  // to find a step
inline constexpr std::size_t kChoiceSymbols = 1U << 19U;  // to choose between forms

// Some of a tensor's symbols, spread evenly: all of them when there are few.
class Sample {
 public:
  Sample(const Planes& planes, std::span<const float> x, const kernels::Kernels& kernels, std::size_t symbols = kSearchSymbols);

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
  double scale_ = 1;    // symbols of the tensor per symbol of the sample
  double settled_ = 1;  // the share of the sample's symbols that have a row before them, where that matters
};

struct StepRange {
  float floor;
  float ceiling;
  float guess;  // where to start
};

// The step at which a monotone function of it meets `target`, to about half a percent of the function's value; the nearer end of the
// range where it does not. The function and the target are positive.
float solve_step(const std::function<double(float)>& function, double target, const StepRange& range);

}  // namespace epipe::codec
