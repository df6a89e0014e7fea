// power: a rank-r approximation by power iteration, X' = Q P^T, warm-started from the previous call.
//
//   [N, C, ...] as X [N, C, L]  ->  P [N, L, r]   Q [N, C, r]      a matrix [C, L] is N = 1
//
// Where the factors would hold as many values as X, or there is no matrix, the inner codec takes the tensor as it is.
#include <fmt/format.h>

#include <limits>

#include "epipe/codec/cuda/device_codecs.h"
#include "epipe/codec/kernels/scatter.h"
#include "epipe/codec/parts.h"
#include "epipe/codec/power_iteration.h"
#include "epipe/codec/span.h"
#include "epipe/codec/thin_product.h"

namespace epipe::codec {
namespace {

// X as [n, c, l].
struct View3 {
  std::uint64_t n, c, l;
};

torch::Tensor orthonormal(const torch::Tensor& columns) { return std::get<0>(at::linalg_qr(columns)); }

class Power final : public Codec {
 public:
  Power(unsigned rank, const InnerFactory& inner, const CodecOptions& options) : rank_(rank), parts_(2, inner), options_(options) {}

  std::string spec() const override { return fmt::format("power:{}{}", rank_, parts_.suffix()); }

  PayloadBounds payload_bounds(const TensorSpec& tensor) const override {
    if (!pays(tensor)) return parts_.first().payload_bounds(tensor);
    return parts_.payload_bounds(shapes(tensor));
  }

  Result<void> encode(const torch::Tensor& x, const EncodeContext& at, Bytes& out) override {
    const auto dense = contiguous_float(x);
    const TensorSpec tensor = spec_of(dense);
    if (!pays(tensor)) return parts_.first().encode(dense, at, out);
    if (!all_finite(dense, *options_.kernels)) return unencodable(values_of(dense), spec(), std::numeric_limits<float>::max());
    const auto [p, q] = iterate(dense, tensor);
    if (!all_finite(p, *options_.kernels)) {
      return Error{ErrorCode::kOutOfRange, fmt::format("the values are too large for {}: a factor overflows float32; use none", spec())};
    }
    const std::size_t start = out.size();
    auto result = parts_.encode({p, q}, at, out);
    if (!result) {
      out.resize(start);
    } else if (!at.frozen) {
      warm_ = p;
    }
    return result;
  }

  Result<void> decode_into(torch::Tensor& x, ByteView in) const override {
    const TensorSpec tensor = spec_of(x);
    if (!pays(tensor)) return parts_.first().decode_into(x, in);
    auto factors = parts_.decode(shapes(tensor), in);
    if (!factors) return factors.error();
    const auto& p = factors.value()[0];
    const auto& q = factors.value()[1];
    thin_product(thin_shape(view_of(tensor)), values_of(q), values_of(p), *options_.kernels, options_.pool, mutable_values_of(x));
    if (!all_finite(x, *options_.kernels)) return Error{ErrorCode::kNonFinite, "the product of the factors overflows float32"};
    return {};
  }

  State state() const override {
    State all = parts_.state();
    if (warm_.defined()) all.emplace(kWarmP, warm_.clone());
    return all;
  }
  void set_state(const State& state) override {
    const auto found = state.find(kWarmP);
    warm_ = found == state.end() ? torch::Tensor() : found->second.clone();
    parts_.set_state(state);
  }
  std::unique_ptr<DeviceCodec> device_codec() const override {
    return make_power_device_codec({[this](const TensorSpec& t) { return pays(t) ? std::optional(thin_shape(view_of(t))) : std::nullopt; },
                                    [this](const TensorSpec& t) { return shapes(t); },
                                    [this](std::size_t part, const TensorSpec& t) { return parts_.codec(part).payload_bounds(t); }},
                                   parts_.device_codecs());
  }

 private:
  std::uint64_t kept_rank(const View3& v) const { return std::min<std::uint64_t>({rank_, v.c, v.l}); }

  static View3 view_of(const TensorSpec& t) {
    if (t.dims.size() == 2) return {1, t.dims[0], t.dims[1]};
    std::uint64_t l = 1;
    for (std::size_t i = 2; i < t.dims.size(); ++i) l *= t.dims[i];
    return {t.dims[0], t.dims[1], l};
  }

  bool pays(const TensorSpec& t) const {
    if (t.dims.size() < 2 || t.values() == 0) return false;
    const View3 v = view_of(t);
    return kept_rank(v) * (v.c + v.l) < v.c * v.l;
  }

  std::vector<TensorSpec> shapes(const TensorSpec& t) const {
    const View3 v = view_of(t);
    return {{{v.n, v.l, kept_rank(v)}}, {{v.n, v.c, kept_rank(v)}}};
  }

  std::pair<torch::Tensor, torch::Tensor> iterate(const torch::Tensor& dense, const TensorSpec& tensor) const {
    const torch::NoGradGuard no_grad;
    const View3 v = view_of(tensor);
    const auto n = static_cast<std::int64_t>(v.n);
    const auto l = static_cast<std::int64_t>(v.l);
    const auto r = static_cast<std::int64_t>(kept_rank(v));
    const auto x = dense.view({n, static_cast<std::int64_t>(v.c), l});
    return power_iteration(x, start_of_iteration(warm_, n, l, r), orthonormal, [&](const torch::Tensor& q) {
      auto p = torch::empty({n, l, r});
      thin_factor(thin_shape(v), values_of(dense), values_of(q), *options_.kernels, options_.pool, mutable_values_of(p));
      return p;
    });
  }

  ThinShape thin_shape(const View3& v) const { return {v.n, v.c, v.l, kept_rank(v)}; }

  unsigned rank_;
  Parts parts_;
  CodecOptions options_;
  torch::Tensor warm_;  // P of the last call; undefined before the first
};

}  // namespace

torch::Tensor first_p(std::int64_t n, std::int64_t l, std::int64_t r) {
  auto p = torch::empty({n, l, r});
  std::uint64_t index = 0;
  for (float& v : mutable_values_of(p)) v = kernels::scattered(index++);
  return p;
}

std::unique_ptr<Codec> make_power(unsigned rank, const InnerFactory& inner, const CodecOptions& options) {
  return std::make_unique<Power>(rank, inner, options);
}

}  // namespace epipe::codec
