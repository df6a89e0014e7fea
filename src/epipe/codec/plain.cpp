// none, fp16, bf16: every value on its own, 4 or 2 bytes each.
#include <atomic>
#include <limits>

#include "epipe/codec/cuda/device_codecs.h"
#include "epipe/codec/factories.h"
#include "epipe/codec/span.h"

namespace epipe::codec {
namespace {

using kernels::Kernels;

struct Format {
  std::string_view name;
  std::size_t bytes;  // per value
  float largest;      // finite value that stays finite
  bool (*Kernels::*store)(std::span<const float>, MutableBytes);
  bool (*Kernels::*load)(ByteView, std::span<float>);
  PlainFormat on_device;
};

constexpr Format kNoneFormat = {
    "none", 4, std::numeric_limits<float>::max(), &Kernels::store_fp32, &Kernels::load_fp32, PlainFormat::kFp32};
constexpr Format kFp16 = {"fp16", 2, 65504.0F, &Kernels::store_fp16, &Kernels::load_fp16, PlainFormat::kFp16};
constexpr Format kBf16 = {"bf16", 2, 3.3895314e38F, &Kernels::store_bf16, &Kernels::load_bf16, PlainFormat::kBf16};

class Plain final : public Codec {
 public:
  Plain(const Format& format, const CodecOptions& options) : format_(format), options_(options) {}

  std::string spec() const override { return std::string(format_.name); }

  PayloadBounds payload_bounds(const TensorSpec& tensor) const override {
    const std::size_t bytes = tensor.values() * format_.bytes;
    return {bytes, bytes};
  }

  Result<void> encode(const torch::Tensor& x, const EncodeContext&, Bytes& out) override {
    const auto dense = contiguous_float(x);
    const auto values = values_of(dense);
    Unwritten room(out, values.size() * format_.bytes);
    const MutableBytes payload = room.span();
    const auto store = options_.kernels->*format_.store;
    std::atomic<bool> fits = true;
    for_parts(options_.pool, values.size(), 64, [&](std::size_t, std::size_t begin, std::size_t end) {
      if (!store(values.subspan(begin, end - begin), payload.subspan(begin * format_.bytes, (end - begin) * format_.bytes))) fits = false;
    });
    if (!fits) return unencodable(values, format_.name, format_.largest);
    room.written();
    return {};
  }

  Result<void> decode_into(torch::Tensor& x, ByteView in) const override {
    const auto values = mutable_values_of(x);
    const std::size_t expected = values.size() * format_.bytes;
    if (in.size() != expected) return wrong_length(format_.name, {expected, expected}, in.size());
    const auto load = options_.kernels->*format_.load;
    std::atomic<bool> finite = true;
    for_parts(options_.pool, values.size(), 64, [&](std::size_t, std::size_t begin, std::size_t end) {
      if (!load(in.subspan(begin * format_.bytes, (end - begin) * format_.bytes), values.subspan(begin, end - begin))) finite = false;
    });
    if (!finite) return Error{ErrorCode::kNonFinite, "the payload holds NaN or Inf"};
    return {};
  }

  State state() const override { return {}; }
  void set_state(const State&) override {}
  std::unique_ptr<DeviceCodec> device_codec() const override { return make_plain_device_codec(format_.on_device); }

 private:
  Format format_;
  CodecOptions options_;
};

}  // namespace

std::unique_ptr<Codec> make_none(const CodecOptions& options) { return std::make_unique<Plain>(kNoneFormat, options); }
std::unique_ptr<Codec> make_fp16(const CodecOptions& options) { return std::make_unique<Plain>(kFp16, options); }
std::unique_ptr<Codec> make_bf16(const CodecOptions& options) { return std::make_unique<Plain>(kBf16, options); }

}  // namespace epipe::codec
