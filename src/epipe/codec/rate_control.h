#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "epipe/codec/codec.h"
#include "epipe/codec/entropy_payload.h"
#include "epipe/codec/factories.h"
#include "epipe/codec/planes.h"
#include "epipe/codec/step_search.h"
#include "epipe/codec/token_tables.h"

// The part of the entropy codecs that decides: form, step and tables of a tensor, on a sample or from the call before, and checked on the
// counts of the whole. It does not care where the tensor lies.
namespace epipe::codec {

// Sums over 2^14 values, each in a fixed order: sixteen interleaved sums of squares, added up from the first to the last.
using BlockSums = kernels::EnergySum;
inline constexpr std::size_t kSumBlock = 1U << 14U;

// What has to be done to a whole tensor, wherever it lies.
class Passes : public SymbolSource {
 public:
  virtual std::vector<BlockSums> sum_blocks() = 0;
  // Begins to make tokens and levels of all symbols, which are kept until the next call. Where the tensor is on a device, that begins to
  // add up the shifts of a sample's parts as well.
  virtual void start_tokens(const Planes& planes, const kernels::DeadZone& zone, std::span<const Chunk> sample) = 0;
  // What they count to; until the next tokens.
  virtual std::span<const TokenCounts> count_tokens() = 0;
  // And the shifts of the sample, as Sample::shifts() has them, after count_tokens(). Empty where the host has the tensor.
  virtual std::span<const Shift> sample_shifts() { return {}; }
  // With these tokens: the sum of (x - x')^2.
  virtual double squared_error(const Planes& planes, const kernels::DeadZone& zone, const TokenTables& tables, float step) = 0;
};

// What goes with a tensor that is coded in other values than its own.
struct Aside {
  std::size_t bytes = 0;  // that the payload has beside the coded values
  double skew = 1;        // a share of their energy is at most so many times that share of the tensor's own
  bool by_axes = false;   // features are coded along principal axes (reflections.h)
  bool spectra = false;   // and they are those of spectra of maps (spectra.h)
};

struct Decision {
  Planes planes;
  CodedHead head;
  TokenTables tables;
  kernels::DeadZone zone;   // of the last tokens
  bool keeps_bound = true;  // false: no step gives an error as small as was asked for
};

class RateControl {
 public:
  RateControl(EntropyKind kind, EntropyTarget target, const CodecOptions& options)
      : kind_(kind), own_(target), target_(target), options_(options) {}

  std::string spec() const;

  // The bits per value of the next tensor; 0: those of the spec. Codecs of a fixed error keep it. An error where nobody says a rate.
  Result<void> set_rate(double rate);

  // A tensor with extremes beyond 2^60 is coded as 2^-exponent times itself; 0 for all others.
  static int scaling_exponent(float largest);

  // For a tensor that is not all zeros, scaled already; `largest` is its largest magnitude. Remembers what it found unless `frozen`.
  Decision decide(const TensorSpec& tensor, float largest, int exponent, Passes& passes, const Aside& aside, bool frozen);
  // Whether the target leaves room for so many bytes, or for those of the channels' means: 0 where there are none or there is no room.
  bool affords(const TensorSpec& tensor, std::size_t bytes, double share) const;
  std::size_t means_bytes(const TensorSpec& tensor) const;
  // What coding it like this costs, in whatever the target leaves open: by the best form, on a sample. Remembers nothing.
  double cost(const TensorSpec& tensor, float largest, Passes& passes, const Aside& aside) const;
  // About the step for values with this RMS, before anything of them is known.
  double expected_step(double rms) const;
  void forget() { memory_.reset(); }
  // Whether what an encoder chose is to be looked at again after so many calls: soon at first, when training changes a tensor most.
  static bool is_time_to_choose(std::uint64_t calls);

  State state() const;
  void set_state(const State& state);

 private:
  // What the encoder remembers.
  struct Memory {
    Form form;
    double step = 0;  // of the RMS of the values that are not zero; 0 before the first
    Rounding rounding{};
    double slope = 0;  // of StepWalk
    std::uint64_t calls = 0;
  };
  struct Scale {
    float largest;  // magnitude
    double energy;  // sum of squares
    double rms;     // of the values that are not zero
  };

  static Scale scale_of(float largest, std::span<const BlockSums> blocks);
  std::vector<Form> forms(const TensorSpec& tensor, const Aside& aside) const;
  unsigned chunk_log2(const TensorSpec& tensor) const;
  double goal(const TensorSpec& tensor, const Scale& scale, const Aside& aside) const;
  StepRange range_for(const Form& form, const Scale& scale, float guess) const;
  float find_step(const Sample& sample, double wanted, const StepRange& range) const;
  double first_slope() const { return target_.is_error ? 2 : -1; }
  float first_step(Sample& sample, double wanted, StepRange range) const;
  struct Choice {
    Form form;
    double cost;
  };
  Choice choose_form(const TensorSpec& tensor, SymbolSource& source, const Scale& scale, const Aside& aside) const;
  Decision decide(const TensorSpec& tensor, const Scale& scale, int exponent, Passes& passes, const Aside& aside, bool frozen,
                  Memory& memory) const;

  EntropyKind kind_;
  EntropyTarget own_;     // of the spec
  EntropyTarget target_;  // of the next tensor
  CodecOptions options_;
  std::optional<Memory> memory_;  // none before the first call
};

}  // namespace epipe::codec
