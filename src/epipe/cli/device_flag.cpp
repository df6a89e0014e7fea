#include "epipe/cli/device_flag.h"

#include <fmt/format.h>
#include <torch/cuda.h>

#include <algorithm>

#include "epipe/cli/command.h"

namespace epipe::cli {
namespace {

constexpr std::string_view kCuda = "cuda";

bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 4 && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

void check_device(std::string_view flag, const std::string& device) {
  if (device == "cpu" || device == kCuda) return;
  if (device.starts_with("cuda:") && is_number(std::string_view(device).substr(kCuda.size() + 1))) return;
  throw UsageError(fmt::format("{}: expected cpu, cuda or cuda:N, got {}", flag, device));
}

void check_device_exists(std::string_view flag, const std::string& device) {
  check_device(flag, device);
  if (device == "cpu") return;
  const auto count = static_cast<int>(torch::cuda::device_count());
  const int index = device == kCuda ? 0 : std::stoi(device.substr(kCuda.size() + 1));
  if (index < count) return;
  throw UsageError(
      fmt::format("{} {}: there are {} CUDA devices here; use cpu, or see docs/gpu.md for a build with CUDA", flag, device, count));
}

}  // namespace epipe::cli
