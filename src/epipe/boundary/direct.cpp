#include "epipe/boundary/direct.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "epipe/base/clock.h"
#include "epipe/boundary/boundary_thread.h"

namespace epipe::boundary {

// The peer gets the tensors before they are checked here.
void Direct::send(MicroBatchTensors sent) {
  for (auto& tensor : sent.tensors) tensor = tensor.detach();
  sent.ready = StreamEvent(sent.tensors);
  const auto tensors = sent.tensors;
  const std::uint64_t step = sent.step;
  const std::uint32_t micro_batch = sent.index;
  handed_over_.push(std::move(sent));
  note_depth(handed_over_, mutex_, traffic_);
  for (const auto& tensor : tensors) look_at(tensor, step, micro_batch);
}

// Its extremes tell whether all values are finite: a NaN makes them NaN. They are read at the end of the step, so that nothing waits for
// the device.
void Direct::look_at(const torch::Tensor& x, std::uint64_t step, std::uint32_t micro_batch) {
  Range range{step, micro_batch, {}, {}};
  if (!config_.flag_non_finite && x.numel() > 0) {
    const auto [least, largest] = torch::aminmax(x);
    range.ends = {least, largest};
    range.ready = StreamEvent(range.ends);
  }
  const std::lock_guard lock(mutex_);
  traffic_.wire_bytes += codec::plain_frame_bytes(x);
  traffic_.values += static_cast<std::uint64_t>(x.numel());
  if (!range.ends.empty()) unchecked_.push_back(std::move(range));
}

std::vector<torch::Tensor> Direct::recv(std::uint64_t step, std::uint32_t micro_batch) {
  const Stopwatch watch;
  MicroBatchTensors got = handed_over_.pop();
  {
    const std::lock_guard lock(mutex_);
    traffic_.recv_seconds += watch.seconds();
  }
  if (got.step != step || got.index != micro_batch) {
    throw std::logic_error(
        fmt::format("expected {}, got step {}, micro-batch {}", describe(config_, step, micro_batch), got.step, got.index));
  }
  got.ready.take(got.tensors);
  return std::move(got.tensors);
}

void Direct::finish() {
  const std::lock_guard checking(checking_);
  std::vector<Range> ranges;
  {
    const std::lock_guard lock(mutex_);
    ranges = unchecked_;
  }
  for (const Range& range : ranges) {
    range.ready.take(range.ends);
    for (const auto& tensor : range.ends) {
      const auto end = tensor.item<double>();
      if (std::isfinite(end)) continue;
      throw std::runtime_error(fmt::format("{}: the tensor holds {}; expected finite values",
                                           describe(config_, range.step, range.micro_batch), std::isnan(end) ? "NaN" : "Inf"));
    }
  }
  const std::lock_guard lock(mutex_);
  unchecked_.erase(unchecked_.begin(), unchecked_.begin() + static_cast<std::ptrdiff_t>(ranges.size()));
}

Traffic Direct::take_traffic() {
  const std::lock_guard lock(mutex_);
  return std::exchange(traffic_, {});
}

}  // namespace epipe::boundary
