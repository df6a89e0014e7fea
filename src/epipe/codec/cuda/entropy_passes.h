#pragma once

#include <torch/types.h>

#include <optional>

#include "epipe/codec/cuda/device_codec.h"
#include "epipe/codec/cuda/memory.h"
#include "epipe/codec/kernels/cuda/layout.h"
#include "epipe/codec/rate_control.h"

namespace epipe::codec {

// Planes in the numbers that kernels take.
kernels::cuda::Layout layout_of(const Planes& planes);
// The first slot of every plane of blocks; one entry for rows.
DeviceArray<std::uint16_t> slots_of_planes(const torch::Tensor& x, const Planes& planes);

// The shifts of all tables, two by table.
std::vector<std::int8_t> flat_shifts(const TokenTables& tables);

// A tensor on a device. Its symbols stay there between calls with the same planes.
class DevicePasses final : public Passes {
 public:
  explicit DevicePasses(torch::Tensor x);

  // The magnitude key of the largest value.
  kernels::Key largest() const { return largest_; }

  std::vector<BlockSums> sum_blocks() override { return sums_; }
  std::vector<float> load(const Planes& planes, std::span<const Chunk> parts) override;
  void start_tokens(const Planes& planes, const kernels::DeadZone& zone) override;
  std::span<const TokenCounts> count_tokens() override;
  double squared_error(const Planes& planes, const kernels::DeadZone& zone, const TokenTables& tables, float step) override;

  // The last tokens as a payload.
  DevicePayload write(const Decision& decision);

 private:
  // Of one layout of the tensor.
  struct Symbols {
    Form form;
    kernels::cuda::Layout layout;
    DeviceArray<std::uint16_t> slot_of_plane;
    torch::Tensor y;  // x itself for rows
    DeviceArray<std::uint8_t> tokens, levels;
    DeviceArray<std::uint32_t> raw_bits;  // by chunk
    DeviceArray<TokenCounts> counts;      // by slot
  };
  struct Raw {
    std::vector<std::uint32_t> bytes;  // by chunk
    std::vector<std::uint64_t> first_word;
    DeviceArray<std::uint32_t> words;
  };

  Symbols& symbols_for(const Planes& planes);
  Raw write_raw(const kernels::DeadZone& zone);

  torch::Tensor x_;
  kernels::Key largest_ = 0;
  std::vector<BlockSums> sums_;
  std::optional<Symbols> symbols_;
  std::vector<TokenCounts> counts_;  // of the last tokens
};

}  // namespace epipe::codec
