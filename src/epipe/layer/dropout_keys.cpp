#include "epipe/layer/dropout_keys.h"

#include <algorithm>
#include <cstring>

#include "epipe/layer/random.h"

namespace epipe::layer {
namespace {

constexpr std::int64_t kMostNames = 256;  // dropouts of a stage

}  // namespace

DropoutKeys::DropoutKeys(std::int64_t samples, torch::Device device)
    : all_(torch::zeros({kMostNames, samples}, torch::dtype(torch::kInt64).device(device))) {}

torch::Tensor DropoutKeys::take(const ForwardContext& at, std::string_view name) {
  const auto found = std::find(names_.begin(), names_.end(), name);
  const auto index = static_cast<std::int64_t>(found - names_.begin());
  if (index == kMostNames) refuse_capture(at, name, "is one dropout too many");
  if (found == names_.end()) names_.emplace_back(name);
  return all_[index];
}

void DropoutKeys::write(const ForwardContext& at) {
  if (names_.empty()) return;
  TORCH_CHECK(static_cast<std::int64_t>(at.samples.size()) == all_.size(1), "expected ", all_.size(1), " samples, got ", at.samples.size());
  const auto rows = static_cast<std::int64_t>(names_.size());
  auto host = torch::empty({rows, all_.size(1)}, torch::dtype(torch::kInt64).pinned_memory(all_.is_cuda()));
  auto* out = host.data_ptr<std::int64_t>();
  for (const std::string& name : names_) {
    const auto keys = sample_keys(at, name);
    std::memcpy(out, keys.data(), keys.size() * sizeof(keys[0]));
    out += all_.size(1);
  }
  all_.narrow(0, 0, rows).copy_(host, /*non_blocking=*/true);
}

}  // namespace epipe::layer
