#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "epipe/codec/codec.h"
#include "epipe/codec/factories.h"
#include "epipe/codec/rate_control.h"
#include "epipe/codec/reflections.h"

namespace epipe::codec {

// Reflections, and what coding by them takes.
struct ReflectionPlan {
  ReflectionPlan(Reflections own, const kernels::Kernels& kernels);

  Reflections reflections;
  Bytes front;  // as they travel
  Aside aside;
  Aside aside_of_spectra() const;  // the same where the features are those of spectra (spectra.h)
};

// Decides whether the features of a tensor are coded by their KLT, and by which reflections.
class ReflectionControl {
 public:
  ReflectionControl(EntropyKind kind, const CodecOptions& options) : wanted_(kind != EntropyKind::kEc), options_(options) {}

  // What an encoder can do with the tensor.
  struct Trial {
    std::function<std::span<const float>()> rows;  // of features: all, or sampled_rows() of them
    std::function<double()> plain;                 // what coding it costs
    std::function<double(const std::shared_ptr<const ReflectionPlan>&)> by_axes;  // by these reflections, which the caller may keep
  };

  // Whether a tensor of this shape may get reflections from this encoder.
  bool considers(const TensorSpec& tensor) const { return wanted_ && Reflections::fits(tensor); }
  // The reflections, or null. As KltControl::choose().
  std::shared_ptr<const ReflectionPlan> choose(const TensorSpec& tensor, RateControl& control, const Trial& trial, bool frozen);

  void add_state(State& state) const;
  void set_state(const State& state);

 private:
  struct Memory {
    std::shared_ptr<const ReflectionPlan> plan;
    std::size_t features = 0;
    std::uint64_t calls = 0;
  };
  std::shared_ptr<const ReflectionPlan> best_plan(const TensorSpec& tensor, const RateControl& control, const Trial& trial) const;
  std::shared_ptr<const ReflectionPlan> plan_for(const Axes& axes, std::size_t count, const TensorSpec& tensor,
                                                 const RateControl& control) const;

  bool wanted_;
  CodecOptions options_;
  std::optional<Memory> memory_;  // none before the first call
};

}  // namespace epipe::codec
