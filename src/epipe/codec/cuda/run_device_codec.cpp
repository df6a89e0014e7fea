#include <algorithm>

#include "epipe/codec/cuda/device_codecs.h"
#include "epipe/codec/cuda/memory.h"
#include "epipe/codec/kernels/cuda/order.h"
#include "epipe/codec/kernels/cuda/runs.h"

namespace epipe::codec {
namespace {

namespace cuda = kernels::cuda;
using kernels::Key;
using kernels::KeyOf;
using kernels::KeyRange;
using kernels::Run;

constexpr std::size_t kDeviceFastSample = 1U << 14;  // pinned in docs/codec_design.md

class RunDeviceCodec final : public DeviceCodec {
 public:
  RunDeviceCodec(RunBorders borders, unsigned level_bits, unsigned split_bits)
      : borders_(borders), level_bits_(level_bits), split_bits_(split_bits) {}

  std::optional<DevicePayload> encode(const torch::Tensor& x, const EncodeContext&) override {
    const auto n = static_cast<std::size_t>(x.numel());
    const cuda::RunShape shape = shape_for(n);
    const std::size_t side = shape.sent * sizeof(Run);
    DevicePayload payload = new_payload(x, side + kernels::packed_bytes(n, level_bits_ + split_bits_));
    const DeviceArray<Run> runs(x, shape.runs());
    payload.fault = new_word(x);
    fit(x, shape, runs, reinterpret_cast<cuda::Fault*>(payload.fault.data_ptr<std::int32_t>()));
    copy(payload.bytes.data_ptr(), runs.data(), side, stream_of(x));
    cuda::encode_runs(x.data_ptr<float>(), n, runs.data(), shape, codes_of(payload, side), stream_of(x));
    return payload;
  }

  bool decode_into(torch::Tensor& x, const DevicePayload& in, ByteView) const override {
    const auto n = static_cast<std::size_t>(x.numel());
    const cuda::RunShape shape = shape_for(n);
    const DeviceArray<Run> runs(x, shape.runs());
    const DeviceArray<cuda::Fault> fault(x, 1);
    cuda::read_runs(reinterpret_cast<const Run*>(in.bytes.data_ptr<std::uint8_t>()), shape, runs.data(), fault.data(), stream_of(x));
    cuda::decode_runs(codes_of(in, shape.sent * sizeof(Run)), n, runs.data(), shape, x.data_ptr<float>(), stream_of(x));
    return sound(fault.data(), in, stream_of(x));
  }

 private:
  cuda::RunShape shape_for(std::size_t n) const {
    return {level_bits_, split_bits_, static_cast<unsigned>(std::min<std::size_t>(std::size_t{1} << split_bits_, n))};
  }

  static std::uint32_t* codes_of(const DevicePayload& payload, std::size_t side) {
    return reinterpret_cast<std::uint32_t*>(payload.bytes.data_ptr<std::uint8_t>() + side);
  }

  void fit(const torch::Tensor& x, const cuda::RunShape& shape, const DeviceArray<Run>& runs, cuda::Fault* fault) const {
    const auto n = static_cast<std::size_t>(x.numel());
    const Stream stream = stream_of(x);
    const DeviceArray<KeyRange> range(x, 1);
    if (borders_ == RunBorders::kFast || shape.sent == 1) cuda::key_range(x.data_ptr<float>(), n, KeyOf::kValue, range.data(), stream);
    if (borders_ == RunBorders::kFast) {
      const std::size_t m = std::min(n, kDeviceFastSample);
      const DeviceArray<float> sample(x, m);
      cuda::sample_values(x.data_ptr<float>(), n, sample.data(), m, stream);
      std::vector<std::uint64_t> ranks;
      for (std::size_t i = 1; i < shape.sent; ++i) ranks.push_back(i * m / shape.sent);
      const DeviceArray<Key> inner = selected(x, sample.data(), m, ranks, 0, nullptr);
      return cuda::fit_touching_runs(inner.data(), range.data(), shape, runs.data(), fault, stream);
    }
    // Equal parts of the sorted order; the first n mod k get one value more. The ends of the whole order come with the range.
    std::vector<std::uint64_t> ranks;
    for (std::size_t i = 1; i < shape.sent; ++i) {
      const std::size_t start = i * (n / shape.sent) + std::min<std::size_t>(i, n % shape.sent);
      ranks.push_back(start - 1);
      ranks.push_back(start);
    }
    const DeviceArray<Key> ends = selected(x, x.data_ptr<float>(), n, ranks, 1, range.data());
    cuda::fit_runs(ends.data(), range.data(), shape, runs.data(), fault, stream);
  }

  // The keys at the ranks, from place `first` on, and the range of all keys where it is asked for.
  static DeviceArray<Key> selected(const torch::Tensor& x, const float* values, std::size_t n, const std::vector<std::uint64_t>& ranks,
                                   std::size_t first, KeyRange* range) {
    DeviceArray<Key> keys(x, ranks.size() + 2);
    if (ranks.empty()) return keys;
    const DeviceArray<std::byte> room(x, cuda::select_room(n, ranks.size()));
    cuda::select_keys(values, n, KeyOf::kValue, ranks, keys.data() + first, range, room.data(), stream_of(x));
    return keys;
  }

  RunBorders borders_;
  unsigned level_bits_;
  unsigned split_bits_;
};

}  // namespace

std::unique_ptr<DeviceCodec> make_run_device_codec(RunBorders borders, unsigned level_bits, unsigned split_bits) {
  return std::make_unique<RunDeviceCodec>(borders, level_bits, split_bits);
}

}  // namespace epipe::codec
