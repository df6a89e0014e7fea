// npy:DIR: train_x.npy, train_y.npy, val_x.npy and val_y.npy.
#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "epipe/data/npy.h"
#include "epipe/data/sources.h"

namespace epipe::data {
namespace {

// Copies these rows of a dense tensor; bytes become floats from 0 to 1.
template <typename T>
torch::Tensor rows(const torch::Tensor& all, std::span<const std::int64_t> ids) {
  constexpr bool kScaled = std::is_same_v<T, std::uint8_t>;
  using Out = std::conditional_t<kScaled, float, T>;
  std::vector<std::int64_t> shape = all.sizes().vec();
  shape[0] = static_cast<std::int64_t>(ids.size());
  torch::Tensor picked = torch::empty(shape, c10::CppTypeToScalarType<Out>::value);
  const std::int64_t length = all.numel() / std::max<std::int64_t>(1, all.size(0));
  Out* to = picked.data_ptr<Out>();
  for (const std::int64_t id : ids) {
    const T* const from = all.data_ptr<T>() + id * length;
    for (std::int64_t i = 0; i < length; ++i) {
      if constexpr (kScaled) {
        *to++ = static_cast<float>(from[i]) / 255.0F;
      } else {
        *to++ = from[i];
      }
    }
  }
  return picked;
}

class Arrays final : public Dataset {
 public:
  Arrays(torch::Tensor x, torch::Tensor y, DataSpec spec) : x_(std::move(x)), y_(std::move(y)), spec_(std::move(spec)) {}
  DataSpec spec() const override { return spec_; }
  std::int64_t size() const override { return x_.size(0); }

  // Plain loops: a LibTorch operator would start its own threads beside the loader's.
  layer::Batch batch(std::span<const std::int64_t> ids, const BatchContext&) const override {
    layer::Batch batch;
    batch.inputs = {x_.scalar_type() == torch::kByte ? rows<std::uint8_t>(x_, ids) : rows<float>(x_, ids)};
    batch.targets = spec_.regression ? rows<float>(y_, ids) : rows<std::int64_t>(y_, ids);
    batch.samples.assign(ids.begin(), ids.end());
    return batch;
  }

 private:
  torch::Tensor x_;  // [N, ...] float32 or uint8
  torch::Tensor y_;  // [N] int64 or [N, K] float32
  DataSpec spec_;
};

[[noreturn]] void fail(const std::string& file, const std::string& message) {
  throw std::runtime_error(fmt::format("{}: {}", file, message));
}

// uint8 images are stored with the channels last, as in image libraries, or first.
torch::Tensor read_x(const std::string& file) {
  auto x = value_or_throw(read_npy_any(file));
  if (x.scalar_type() == torch::kDouble) x = x.to(torch::kFloat);
  if (x.dim() < 2) fail(file, fmt::format("expected samples of at least one dim, [N, ...], got {} dims", x.dim()));
  if (x.scalar_type() != torch::kFloat && x.scalar_type() != torch::kByte) fail(file, "expected float32 values or uint8 images");
  const bool channels_last = x.scalar_type() == torch::kByte && x.dim() == 4 && (x.size(3) == 1 || x.size(3) == 3) && x.size(1) > 3;
  return channels_last ? x.permute({0, 3, 1, 2}).contiguous() : x;
}

// Whole numbers are classes, floats are values to predict.
torch::Tensor read_y(const std::string& file, std::int64_t samples) {
  auto y = value_or_throw(read_npy_any(file));
  if (y.dim() < 1 || y.size(0) != samples) {
    fail(file, fmt::format("expected {} targets, one per sample, got {}", samples, y.dim() < 1 ? 0 : y.size(0)));
  }
  if (y.is_floating_point()) return y.to(torch::kFloat).reshape({samples, -1}).contiguous();
  if (y.numel() != samples) fail(file, "expected one class per sample, got several values");
  y = y.reshape({samples}).to(torch::kLong);
  if (samples > 0 && y.min().item<std::int64_t>() < 0) fail(file, "expected classes from 0 on, got a negative one");
  return y;
}

}  // namespace

Splits open_npy(const std::string& folder, const DataConfig&) {
  for (const char* const name : {"train_x", "train_y", "val_x", "val_y"}) {
    if (!exists(fmt::format("{}/{}.npy", folder, name))) {
      throw std::runtime_error(fmt::format(
          "no {1}.npy in {0}; npy:DIR expects train_x.npy, train_y.npy, val_x.npy and val_y.npy, written by numpy.save", folder, name));
    }
  }
  const auto x = read_x(folder + "/train_x.npy");
  const auto y = read_y(folder + "/train_y.npy", x.size(0));
  const auto val_x = read_x(folder + "/val_x.npy");
  const auto val_y = read_y(folder + "/val_y.npy", val_x.size(0));
  if (x.sizes().slice(1) != val_x.sizes().slice(1)) fail(folder, "the samples of train_x.npy and val_x.npy differ in shape");
  if (y.scalar_type() != val_y.scalar_type() || y.sizes().slice(1) != val_y.sizes().slice(1)) {
    fail(folder, "the targets of train_y.npy and val_y.npy differ in kind or shape");
  }
  DataSpec spec{DataSpec::Kind::kImages, x.sizes().slice(1).vec()};
  spec.regression = y.is_floating_point();
  if (spec.regression) spec.metrics = {"mse"};
  const auto most = [](const torch::Tensor& t) { return t.numel() == 0 ? 0 : t.max().item<std::int64_t>(); };
  spec.classes = spec.regression ? y.size(1) : std::max<std::int64_t>(2, 1 + std::max(most(y), most(val_y)));
  return {std::make_unique<Arrays>(x, y, spec), std::make_unique<Arrays>(val_x, val_y, spec)};
}

}  // namespace epipe::data
