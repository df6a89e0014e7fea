// lowrank: the truncated singular value decomposition of every matrix in the last two dims, X' = U diag(S) V^T.
//
//   [..., m, n]  ->  U [..., m, q]   S [..., q]   V [..., n, q]      q = min(K, m, n)
//
// Where the factors would hold as many values as the matrix, or there is no matrix, the inner codec takes the tensor as it is.
#include <fmt/format.h>

#include <limits>

#include "epipe/codec/cuda/device_codecs.h"
#include "epipe/codec/parts.h"
#include "epipe/codec/span.h"
#include "epipe/codec/thin_product.h"

namespace epipe::codec {
namespace {

using Dims = std::vector<std::uint64_t>;

class LowRank final : public Codec {
 public:
  LowRank(unsigned rank, const InnerFactory& inner, const CodecOptions& options) : rank_(rank), parts_(3, inner), options_(options) {}

  std::string spec() const override { return fmt::format("lowrank:{}{}", rank_, parts_.suffix()); }

  PayloadBounds payload_bounds(const TensorSpec& tensor) const override {
    if (!pays(tensor)) return parts_.first().payload_bounds(tensor);
    return parts_.payload_bounds(shapes(tensor));
  }

  Result<void> encode(const torch::Tensor& x, const EncodeContext& at, Bytes& out) override {
    const auto dense = contiguous_float(x);
    const TensorSpec tensor = spec_of(dense);
    if (!pays(tensor)) return parts_.first().encode(dense, at, out);
    if (!all_finite(dense, *options_.kernels)) return unencodable(values_of(dense), spec(), std::numeric_limits<float>::max());
    const torch::NoGradGuard no_grad;
    const auto q = static_cast<std::int64_t>(kept_rank(tensor));
    const auto [u, s, vt] = at::linalg_svd(dense, /*full_matrices=*/false);
    const std::vector<torch::Tensor> factors = {u.narrow(-1, 0, q).contiguous(), s.narrow(-1, 0, q).contiguous(),
                                                vt.narrow(-2, 0, q).transpose(-1, -2).contiguous()};
    const std::size_t start = out.size();
    auto result = parts_.encode(factors, at, out);
    if (!result) out.resize(start);
    return result;
  }

  Result<void> decode_into(torch::Tensor& x, ByteView in) const override {
    const TensorSpec tensor = spec_of(x);
    if (!pays(tensor)) return parts_.first().decode_into(x, in);
    auto factors = parts_.decode(shapes(tensor), in);
    if (!factors) return factors.error();
    const auto& f = factors.value();
    const auto scaled = f[0] * f[1].unsqueeze(-2);
    thin_product(thin_shape(tensor), values_of(scaled), values_of(f[2]), *options_.kernels, options_.pool, mutable_values_of(x));
    if (!all_finite(x, *options_.kernels)) return Error{ErrorCode::kNonFinite, "the product of the factors overflows float32"};
    return {};
  }

  State state() const override { return parts_.state(); }
  void set_state(const State& state) override { parts_.set_state(state); }
  std::unique_ptr<DeviceCodec> device_codec() const override {
    return make_lowrank_device_codec({[this](const TensorSpec& t) { return pays(t) ? std::optional(thin_shape(t)) : std::nullopt; },
                                      [this](const TensorSpec& t) { return shapes(t); },
                                      [this](std::size_t part, const TensorSpec& t) { return parts_.codec(part).payload_bounds(t); }},
                                     parts_.device_codecs());
  }

 private:
  static std::uint64_t rows(const TensorSpec& t) { return t.dims[t.dims.size() - 2]; }
  static std::uint64_t columns(const TensorSpec& t) { return t.dims.back(); }
  std::uint64_t kept_rank(const TensorSpec& t) const { return std::min<std::uint64_t>({rank_, rows(t), columns(t)}); }

  ThinShape thin_shape(const TensorSpec& t) const { return {t.values() / (rows(t) * columns(t)), rows(t), columns(t), kept_rank(t)}; }

  bool pays(const TensorSpec& t) const {
    if (t.dims.size() < 2 || t.values() == 0) return false;
    return kept_rank(t) * (rows(t) + columns(t) + 1) < rows(t) * columns(t);
  }

  std::vector<TensorSpec> shapes(const TensorSpec& t) const {
    const Dims batch(t.dims.begin(), t.dims.end() - 2);
    const auto with = [&](std::initializer_list<std::uint64_t> tail) {
      TensorSpec shape{batch};
      shape.dims.insert(shape.dims.end(), tail);
      return shape;
    };
    const std::uint64_t q = kept_rank(t);
    return {with({rows(t), q}), with({q}), with({columns(t), q})};
  }

  unsigned rank_;
  Parts parts_;
  CodecOptions options_;
};

}  // namespace

std::unique_ptr<Codec> make_lowrank(unsigned rank, const InnerFactory& inner, const CodecOptions& options) {
  return std::make_unique<LowRank>(rank, inner, options);
}

}  // namespace epipe::codec
