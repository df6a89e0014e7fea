#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "epipe/base/thread_pool.h"
#include "epipe/codec/kernels/kernels.h"
#include "epipe/codec/planes.h"
#include "epipe/codec/token_stream.h"
#include "epipe/codec/token_tables.h"

// Finds the step of the quantizer: on a sample of the tensor, or from what the whole of it gave.
namespace epipe::codec {

// Where rounding goes up, in steps: to 1 at `threshold`, to the next level `offset` before it. At 0.5 each it is to the nearest; later
// is better because the larger of two levels costs more bits.
struct Rounding {
  float threshold = 0.62F;
  float offset = 0.44F;

  bool operator==(const Rounding&) const = default;
};

kernels::DeadZone dead_zone(float step, const Rounding& rounding);
// What pays where tokens count to this: a level goes up where that takes off more error than its bits are worth.
Rounding rounding_for(std::span<const TokenCounts> counts);

inline constexpr std::size_t kSearchSymbols = 1U << 16U;  // to find a step
inline constexpr std::size_t kChoiceSymbols = 1U << 19U;  // to choose between forms

// Where the symbols of a sample come from.
class SymbolSource {
 public:
  virtual ~SymbolSource() = default;
  // The symbols of parts of a tensor, each as Planes::load() gives them, one after the other. All parts but the last have equal sizes.
  virtual std::vector<float> load(const Planes& planes, std::span<const Chunk> parts) = 0;
};

// Some of a tensor's symbols, spread evenly: all of them when there are few. They are loaded when something is asked of them; the source
// outlives the sample. What it says does not depend on the number of threads.
class Sample {
 public:
  Sample(const Planes& planes, SymbolSource& source, const kernels::Kernels& kernels, ThreadPool* pool,
         std::size_t symbols = kSearchSymbols);

  // The parts of the tensor that it is made of, as the source loads them.
  std::span<const Chunk> chunks() const { return chunks_; }

  // Sets the rounding to what pays at this step.
  void adapt(float step) { rounding_ = rounding_for(counted_trial(step).counts); }
  const Rounding& rounding() const { return rounding_; }
  void set_rounding(const Rounding& rounding) { rounding_ = rounding; }

  // About how many bits the tokens of the whole tensor take with this step.
  double bits(float step) const;
  // About how large the sum of (x - x')^2 over the whole tensor is.
  double squared_error(float step) const;
  // Per slot, as fit_tables() takes them.
  std::vector<Shift> shifts(float step) const;

 private:
  struct Part {
    Chunk chunk;
    std::vector<float> y;
  };
  // What the sample becomes with one step.
  struct Trial {
    float step = 0;
    Rounding rounding;
    kernels::DeadZone zone{};
    bool counted = false;
    std::vector<TokenCounts> counts;
    std::vector<std::vector<std::uint8_t>> tokens, levels;  // by part
  };

  const Trial& trial(float step) const { return trial(step, false); }
  const Trial& counted_trial(float step) const { return trial(step, true); }
  const Trial& trial(float step, bool counted) const;
  void choose_all();
  void choose_rows(std::size_t symbols);
  void choose_blocks(std::size_t symbols);
  const std::vector<Part>& parts() const;
  std::vector<Part> load() const;
  std::vector<Part> load_blocks() const;
  template <typename Each>
  void for_parts(Each&& each) const;

  Planes planes_;
  SymbolSource& source_;
  const kernels::Kernels* kernels_;
  ThreadPool* pool_;
  std::vector<Chunk> chunks_;
  bool batches_ = false;  // of blocks, many of which make one part with long planes
  mutable std::vector<Part> parts_;  // once they were asked for
  Rounding rounding_;
  double scale_ = 1;                           // symbols of the tensor per symbol of the sample
  double settled_ = 1;                         // the share of the sample's symbols that have a row before them, where that matters
  mutable Trial last_;                         // the next question is often about the same step
  mutable std::vector<CountedTokens> counts_;  // warm, by thread
};

struct StepRange {
  float floor;
  float ceiling;
  float guess;                  // where to start
  double close_enough = 0.003;  // octaves of the function's value
};

// The step at which a monotone function of it meets `target`, as closely as the range asks for; the nearer end of the
// range where it does not, the floor where the function says nothing. The function and the target are positive; `slope` is about how the
// function's logarithm follows the step's, and its sign is right.
float solve_step(const std::function<double(float)>& function, double target, double slope, const StepRange& range);

// Steps for one tensor, each from what those before really gave: `slope` is how the logarithm of that follows the step's, and is learnt
// on the way.
class StepWalk {
 public:
  explicit StepWalk(double slope) : slope_(slope) {}

  // After `step` gave `got` where `target` was wanted.
  float next(float step, double got, double target, const StepRange& range);
  double slope() const { return slope_; }

 private:
  struct Point {
    double step, value;  // log2; the value relative to the target
  };
  double slope_;
  std::optional<Point> before_;
  std::optional<double> too_small_;  // the largest step of which that is known, log2
  std::optional<double> too_large_;  // the smallest
};

}  // namespace epipe::codec
