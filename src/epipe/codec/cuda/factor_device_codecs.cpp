#include <torch/torch.h>

#include <algorithm>

#include "epipe/codec/cuda/device_codecs.h"
#include "epipe/codec/cuda/memory.h"
#include "epipe/codec/kernels/cuda/factors.h"
#include "epipe/codec/kernels/cuda/order.h"
#include "epipe/codec/kernels/cuda/thin_product.h"
#include "epipe/codec/kernels/key.h"
#include "epipe/codec/parts.h"
#include "epipe/codec/power_iteration.h"

namespace epipe::codec {
namespace {

namespace cuda = kernels::cuda;
using Factors = std::vector<torch::Tensor>;
using DeviceCodecs = std::vector<std::unique_ptr<DeviceCodec>>;

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);

std::vector<std::int64_t> sizes_of(const TensorSpec& tensor) { return {tensor.dims.begin(), tensor.dims.end()}; }

bool all_finite(const torch::Tensor& x) {
  const DeviceArray<kernels::KeyRange> range(x, 1);
  cuda::key_range(x.data_ptr<float>(), static_cast<std::size_t>(x.numel()), kernels::KeyOf::kValue, range.data(), stream_of(x));
  return kernels::all_finite(fetch_one(range.data(), stream_of(x)));
}

// A tensor as factors, each coded by a device codec of its own.
class FactorDeviceCodec : public DeviceCodec {
 public:
  FactorDeviceCodec(FactorForm form, DeviceCodecs inner) : form_(std::move(form)), inner_(std::move(inner)) {}

  std::optional<DevicePayload> encode(const torch::Tensor& x, const EncodeContext& at) override {
    const auto product = form_.product(spec_of(x));
    if (!product) return inner_.front()->encode(x, at);
    if (!all_finite(x)) return std::nullopt;
    const torch::NoGradGuard no_grad;
    const auto [batch, rows, columns, rank] = *product;
    auto factors =
        split(x.view({static_cast<std::int64_t>(batch), static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)}), *product);
    if (!factors) return std::nullopt;
    const auto shapes = form_.shapes(spec_of(x));
    const State before = joined_state(inner_);
    std::vector<DevicePayload> payloads;
    for (std::size_t i = 0; i < inner_.size(); ++i) {
      auto payload = settled(inner_[i]->encode((*factors)[i].view(sizes_of(shapes[i])), at));
      if (!payload) {
        set_joined_state(inner_, before);  // those before this one have gone on
        return std::nullopt;
      }
      payloads.push_back(std::move(*payload));
    }
    if (!at.frozen) remember(*factors);
    return assemble(x, payloads);
  }

  bool decode_into(torch::Tensor& x, const DevicePayload& in, ByteView host) const override {
    const auto product = form_.product(spec_of(x));
    if (!product) return inner_.front()->decode_into(x, in, host);
    const auto factors = decode_factors(x, in, host);
    if (!factors) return false;
    const auto [left, right] = sides(*factors);
    const Stream stream = stream_of(x);
    const DeviceArray<std::uint32_t> wrong(x, 1);
    clear(wrong.data(), 4, stream);
    cuda::thin_product({product->batch, product->rows, product->columns, static_cast<unsigned>(product->rank)}, left.data_ptr<float>(),
                       right.data_ptr<float>(), x.data_ptr<float>(), wrong.data(), stream);
    return fetch_one(wrong.data(), stream) == 0;
  }

  State state() const override { return joined_state(inner_); }
  void set_state(const State& state) override { set_joined_state(inner_, state); }

 protected:
  // The factors of x [batch, rows, columns], contiguous; nullopt where the device has no way to them.
  virtual std::optional<Factors> split(const torch::Tensor& x, const ThinShape& product) = 0;
  virtual void remember(const Factors&) {}
  // What thin_product() takes, contiguous.
  struct Sides {
    torch::Tensor left, right;
  };
  virtual Sides sides(const Factors& factors) const = 0;

 private:
  static DevicePayload assemble(const torch::Tensor& x, const std::vector<DevicePayload>& parts) {
    std::size_t size = 0;
    for (const auto& part : parts) size += kLengthBytes + part.size;
    DevicePayload payload = new_payload(x, size);
    auto* out = payload.bytes.data_ptr<std::uint8_t>();
    for (const auto& part : parts) {
      const std::uint64_t length = part.size;
      send(out, &length, kLengthBytes, stream_of(x));
      if (part.size > 0) copy(out + kLengthBytes, part.bytes.data_ptr(), part.size, stream_of(x));
      out += kLengthBytes + part.size;
    }
    return payload;
  }

  std::optional<Factors> decode_factors(const torch::Tensor& x, const DevicePayload& in, ByteView host) const {
    const auto shapes = form_.shapes(spec_of(x));
    Factors factors;
    std::size_t at = 0;
    for (std::size_t i = 0; i < inner_.size(); ++i) {
      if (in.size - at < kLengthBytes) return std::nullopt;
      std::uint64_t length;
      if (host.empty()) {
        fetch(&length, in.bytes.data_ptr<std::uint8_t>() + at, kLengthBytes, stream_of(x));
      } else {
        length = load<std::uint64_t>(host, at);
      }
      at += kLengthBytes;
      const auto bounds = form_.bounds(i, shapes[i]);
      if (length > in.size - at || length < bounds.min || length > bounds.max) return std::nullopt;
      auto factor = torch::empty(sizes_of(shapes[i]), x.options().requires_grad(false));
      if (!inner_[i]->decode_into(factor, part_of(in, at, length), host.empty() ? host : host.subspan(at, length))) return std::nullopt;
      factors.push_back(std::move(factor));
      at += length;
    }
    if (at != in.size) return std::nullopt;
    return factors;
  }

  FactorForm form_;
  DeviceCodecs inner_;
};

class LowRankDeviceCodec final : public FactorDeviceCodec {
 public:
  using FactorDeviceCodec::FactorDeviceCodec;

 private:
  std::optional<Factors> split(const torch::Tensor& x, const ThinShape& product) override {
    const bool wide = product.rows <= product.columns;
    const auto a = wide ? x : x.transpose(1, 2).contiguous();  // no more rows than columns
    const auto batch = a.size(0);
    const auto rows = static_cast<std::uint64_t>(a.size(1));
    const auto columns = static_cast<std::uint64_t>(a.size(2));
    const auto rank = static_cast<std::int64_t>(product.rank);
    if (!cuda::principal_vectors_fit(product.batch, rows, columns)) return std::nullopt;
    auto values = torch::empty({batch, rank}, x.options());
    auto right = torch::empty({batch, a.size(2), rank}, x.options());
    cuda::principal_vectors(a.data_ptr<float>(), product.batch, rows, columns, static_cast<unsigned>(rank), values.data_ptr<float>(),
                            right.data_ptr<float>(), stream_of(x));
    const auto scale = values.unsqueeze(1);
    auto left = torch::where(scale > 0, torch::matmul(a, right) / scale, torch::zeros_like(scale)).contiguous();
    left.clamp_(-1, 1);  // as it is, but for rounding where the value is next to nothing
    if (wide) return Factors{left, values, right};
    return Factors{right, values, left};
  }

  Sides sides(const Factors& factors) const override { return {factors[0] * factors[1].unsqueeze(-2), factors[2]}; }
};

class PowerDeviceCodec final : public FactorDeviceCodec {
 public:
  using FactorDeviceCodec::FactorDeviceCodec;

  State state() const override {
    State all = FactorDeviceCodec::state();
    if (warm_.defined()) all.emplace(kWarmP, warm_.cpu());
    return all;
  }
  void set_state(const State& state) override {
    const auto found = state.find(kWarmP);
    warm_ = found == state.end() ? torch::Tensor() : found->second.clone();
    FactorDeviceCodec::set_state(state);
  }

 private:
  std::optional<Factors> split(const torch::Tensor& x, const ThinShape& product) override {
    if (!cuda::orthonormal_columns_fit(product.batch, static_cast<unsigned>(product.rank))) return std::nullopt;
    const auto start = start_of_iteration(warm_, x.size(0), x.size(2), static_cast<std::int64_t>(product.rank)).to(x.device());
    // The last call may have had another stream.
    if (start.is_same(warm_)) warm_.record_stream(c10::cuda::getCurrentCUDAStream(x.device().index()));
    auto [p, q] = power_iteration(x, start, orthonormal, [&](const torch::Tensor& q) { return torch::matmul(x.transpose(1, 2), q); });
    return Factors{p.contiguous(), q};
  }

  void remember(const Factors& factors) override { warm_ = factors[0]; }
  Sides sides(const Factors& factors) const override { return {factors[1], factors[0]}; }

  static torch::Tensor orthonormal(const torch::Tensor& columns) {
    auto own = columns.clone(at::MemoryFormat::Contiguous);
    cuda::orthonormal_columns(own.data_ptr<float>(), static_cast<std::uint64_t>(own.size(0)), static_cast<std::uint64_t>(own.size(1)),
                              static_cast<unsigned>(own.size(2)), stream_of(own));
    return own;
  }

  torch::Tensor warm_;  // P of the last call; undefined before the first
};

bool all_there(const DeviceCodecs& device_codecs) {
  return std::all_of(device_codecs.begin(), device_codecs.end(), [](const auto& device_codec) { return device_codec != nullptr; });
}

}  // namespace

std::unique_ptr<DeviceCodec> make_lowrank_device_codec(FactorForm form, DeviceCodecs inner) {
  return all_there(inner) ? std::make_unique<LowRankDeviceCodec>(std::move(form), std::move(inner)) : nullptr;
}

std::unique_ptr<DeviceCodec> make_power_device_codec(FactorForm form, DeviceCodecs inner) {
  return all_there(inner) ? std::make_unique<PowerDeviceCodec>(std::move(form), std::move(inner)) : nullptr;
}

}  // namespace epipe::codec
