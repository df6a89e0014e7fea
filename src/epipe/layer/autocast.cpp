#include "epipe/layer/autocast.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/generated/variable_factories.h>
#include <torch/version.h>

#include <stdexcept>

namespace epipe::layer {
namespace {

using torch::DeviceType;
using torch::ScalarType;

// The device-generic calls exist since 2.4.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)

bool is_enabled(DeviceType device) { return at::autocast::is_autocast_enabled(device); }
void enable(DeviceType device, bool enabled) { at::autocast::set_autocast_enabled(device, enabled); }
ScalarType type_on(DeviceType device) { return at::autocast::get_autocast_dtype(device); }
void set_type(DeviceType device, ScalarType type) { at::autocast::set_autocast_dtype(device, type); }

#else

bool is_enabled(DeviceType device) { return device == torch::kCPU ? at::autocast::is_cpu_enabled() : at::autocast::is_enabled(); }
void enable(DeviceType device, bool enabled) {
  device == torch::kCPU ? at::autocast::set_cpu_enabled(enabled) : at::autocast::set_enabled(enabled);
}
ScalarType type_on(DeviceType device) {
  return device == torch::kCPU ? at::autocast::get_autocast_cpu_dtype() : at::autocast::get_autocast_gpu_dtype();
}
void set_type(DeviceType device, ScalarType type) {
  device == torch::kCPU ? at::autocast::set_autocast_cpu_dtype(type) : at::autocast::set_autocast_gpu_dtype(type);
}

#endif

ScalarType scalar_type(Precision precision) {
  return precision == Precision::kBf16 ? torch::kBFloat16 : precision == Precision::kFp16 ? torch::kHalf : torch::kFloat32;
}

bool computes(DeviceType device, Precision precision) {
  try {
    const torch::NoGradGuard no_grad;
    const Autocast autocast(device, precision, false);
    const auto ones = [&](torch::IntArrayRef shape) { return torch::ones(shape, torch::dtype(torch::kFloat32).device(device)); };
    return torch::conv2d(ones({1, 2, 3, 3}), ones({2, 2, 3, 3})).scalar_type() == scalar_type(precision) &&
           torch::matmul(ones({2, 3}), ones({3, 2})).scalar_type() == scalar_type(precision);
  } catch (const std::exception&) {  // c10's, or oneDNN's own
    return false;
  }
}

}  // namespace

Precision parse_precision(const std::string& name) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    if (name == to_string(precision)) return precision;
  }
  throw std::invalid_argument(fmt::format("unknown precision \"{}\"; known are fp32, bf16 and fp16", name));
}

std::string to_string(Precision precision) {
  switch (precision) {
    case Precision::kFp32: return "fp32";
    case Precision::kBf16: return "bf16";
    case Precision::kFp16: return "fp16";
  }
  return "";
}

// LibTorch gives bf16 to oneDNN where the CPU has AVX-512, even if oneDNN is limited to less and has no bf16 then. Without oneDNN LibTorch
// computes it itself.
bool can_compute(DeviceType device, Precision precision) {
  if (precision == Precision::kFp32 || computes(device, precision)) return true;
  at::Context& context = at::globalContext();
  if (device != torch::kCPU || precision != Precision::kBf16 || !context.userEnabledMkldnn()) return false;
  context.setUserEnabledMkldnn(false);
  if (computes(device, precision)) return true;
  context.setUserEnabledMkldnn(true);
  return false;
}

ScalarType product_type(const torch::Tensor& x) {
  const DeviceType device = x.device().type();
  return is_enabled(device) ? type_on(device) : x.scalar_type();
}

torch::Tensor in_type_of(const torch::Tensor& weight, const torch::Tensor& x) {
  return weight.scalar_type() == torch::kFloat32 ? weight : weight.to(product_type(x));
}

Autocast::Autocast(DeviceType device, Precision precision, bool keep_casts) : device_(device), active_(precision != Precision::kFp32) {
  if (!active_) return;
  was_enabled_ = is_enabled(device_);
  was_type_ = type_on(device_);
  kept_casts_ = at::autocast::is_autocast_cache_enabled();
  set_type(device_, scalar_type(precision));
  enable(device_, true);
  at::autocast::set_autocast_cache_enabled(keep_casts);
}

Autocast::~Autocast() {
  if (!active_) return;
  at::autocast::set_autocast_cache_enabled(kept_casts_);
  enable(device_, was_enabled_);
  set_type(device_, was_type_);
}

CastScope::CastScope() { at::autocast::clear_cache(); }
CastScope::~CastScope() { at::autocast::clear_cache(); }

}  // namespace epipe::layer
