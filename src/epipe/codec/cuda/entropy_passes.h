#pragma once

#include <torch/types.h>

#include <optional>

#include "epipe/codec/cuda/device_codec.h"
#include "epipe/codec/cuda/memory.h"
#include "epipe/codec/kernels/cuda/layout.h"
#include "epipe/codec/kernels/cuda/tokens.h"
#include "epipe/codec/rate_control.h"

namespace epipe::codec {

// Planes in the numbers that kernels take.
kernels::cuda::Layout layout_of(const Planes& planes);
// The first slot of every plane of blocks; one entry for rows.
DeviceArray<std::uint16_t> slots_of_planes(const torch::Tensor& x, const Planes& planes);

// The shifts of all tables, two by table.
std::vector<std::int8_t> flat_shifts(const TokenTables& tables);

// A tensor on a device. Its symbols stay there between calls with the same planes. The host waits three times for a tensor like the one
// before: for sums() and what goes with them, for the counts of its tokens, and for the sizes of its chunks.
class DevicePasses final : public Passes {
 public:
  enum class Maps : std::uint8_t { kLeave, kSum };
  explicit DevicePasses(torch::Tensor x, Maps maps = Maps::kLeave);

  TensorSpec spec() const;
  // The magnitude key of the largest value.
  kernels::Key largest() const { return largest_; }
  // Of [N, C, H, W], by map.
  std::span<const double> map_sums() const { return map_sums_; }

  std::vector<BlockSums> sum_blocks() override { return sums_; }
  std::vector<float> load(const Planes& planes, std::span<const Chunk> parts) override;
  void start_tokens(const Planes& planes, const kernels::DeadZone& zone, std::span<const Chunk> sample) override;
  std::span<const TokenCounts> count_tokens() override;
  std::span<const Shift> sample_shifts() override { return shifts_; }
  double squared_error(const Planes& planes, const kernels::DeadZone& zone, const TokenTables& tables, float step) override;

  // The last tokens as a payload.
  DevicePayload write(const Decision& decision);

 private:
  // What the host reads after each pass lies side by side.
  struct Results {
    std::size_t slots, chunks;
    DeviceArray<std::byte> room;  // counts and excess by slot, raw bits by chunk

    Results(const torch::Tensor& x, std::size_t slots, std::size_t chunks);
    TokenCounts* counts() const { return reinterpret_cast<TokenCounts*>(room.data()); }
    kernels::cuda::Excess* excess() const { return reinterpret_cast<kernels::cuda::Excess*>(counts() + slots); }
    std::uint32_t* raw_bits() const { return reinterpret_cast<std::uint32_t*>(excess() + slots); }
  };
  // Symbols by themselves: all of the tensor, or those of a sample.
  struct Tokens {
    kernels::cuda::Layout layout;
    torch::Tensor y;
    DeviceArray<std::uint8_t> tokens, levels;
  };
  // Of one layout of the tensor.
  struct Symbols {
    Form form;
    DeviceArray<std::uint16_t> slot_of_plane;
    Tokens all;  // y is x itself for rows
    Results results;
    std::optional<Tokens> sample;
    DeviceArray<std::byte> unused;  // counts and raw bits of the sample
  };
  struct Raw {
    std::vector<std::uint32_t> bytes;  // by chunk
    std::vector<std::uint64_t> first_word;
    DeviceArray<std::uint32_t> words;
  };

  Symbols& symbols_for(const Planes& planes);
  torch::Tensor load_on_device(const Planes& planes, std::span<const Chunk> parts);
  void add_sample(const Planes& planes, const kernels::DeadZone& zone, std::span<const Chunk> sample);
  Raw write_raw(const kernels::DeadZone& zone);

  torch::Tensor x_;
  kernels::Key largest_ = 0;
  std::vector<BlockSums> sums_;
  std::vector<double> map_sums_;
  std::optional<Symbols> symbols_;
  // Of the last tokens.
  std::vector<TokenCounts> counts_;
  std::vector<Shift> shifts_;
  std::vector<std::uint32_t> raw_bits_;
};

}  // namespace epipe::codec
