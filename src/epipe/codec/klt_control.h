#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "epipe/codec/channel_basis.h"
#include "epipe/codec/codec.h"
#include "epipe/codec/factories.h"
#include "epipe/codec/rate_control.h"

namespace epipe::codec {

// A basis, and what coding in it takes.
struct ChannelPlan {
  explicit ChannelPlan(ChannelBasis own)
      : basis(std::move(own)), from_channels(basis.from_channels()), aside{basis_bytes(basis.channels()), basis.skew()} {}

  ChannelBasis basis;
  std::vector<float> from_channels;
  Aside aside;
};

// Decides whether the channels of a tensor are coded by their KLT, and in which basis; does not care where the tensor lies.
class KltControl {
 public:
  explicit KltControl(EntropyKind kind) : wanted_(kind != EntropyKind::kEc) {}

  // What an encoder can do with the tensor.
  struct Trial {
    std::function<double()> plain;                  // what coding it costs
    std::function<double(const ChannelPlan&)> klt;  // in this basis
  };

  // The basis, or null. Tries it out on the first call, for other channels, and now and then; the basis is renewed more often.
  // Remembers what it found unless `frozen`. Where it goes from one way to the other, what `control` remembers is of no use and forgotten.
  std::shared_ptr<const ChannelPlan> choose(const torch::Tensor& x, RateControl& control, const Trial& trial, bool frozen);

  void add_state(State& state) const;
  void set_state(const State& state);

 private:
  struct Memory {
    std::shared_ptr<const ChannelPlan> plan;
    std::int64_t channels = 0;  // of the tensor
    std::uint64_t calls = 0;
  };

  bool wanted_;
  std::optional<Memory> memory_;  // none before the first call
};

}  // namespace epipe::codec
