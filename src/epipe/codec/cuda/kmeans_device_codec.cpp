#include <algorithm>
#include <cmath>

#include "epipe/codec/cuda/device_codecs.h"
#include "epipe/codec/cuda/memory.h"
#include "epipe/codec/kernels/cuda/order.h"
#include "epipe/codec/kernels/cuda/runs.h"
#include "epipe/codec/kernels/key.h"

namespace epipe::codec {
namespace {

namespace cuda = kernels::cuda;
using kernels::Key;

class KMeansDeviceCodec final : public DeviceCodec {
 public:
  KMeansDeviceCodec(unsigned bits, KMeansFit fit) : bits_(bits), fit_(std::move(fit)) {}

  std::optional<DevicePayload> encode(const torch::Tensor& x, const EncodeContext&) override {
    const auto n = static_cast<std::size_t>(x.numel());
    const Stream stream = stream_of(x);
    const DeviceArray<kernels::KeyRange> device_range(x, 1);
    cuda::key_range(x.data_ptr<float>(), n, kernels::KeyOf::kValue, device_range.data(), stream);
    const auto range = fetch_one(device_range.data(), stream);
    if (!kernels::all_finite(range)) return std::nullopt;
    const std::vector<float> centroids = fit_.centroids(sample_of(x, range), n);
    const std::vector<float> thresholds = fit_.thresholds(centroids);

    const std::size_t head = kCountBytes + centroids.size() * sizeof(float);
    const DevicePayload payload = new_payload(x, head + kernels::packed_bytes(n, bits_));
    Bytes side;
    append(side, static_cast<std::uint32_t>(centroids.size()));
    std::memcpy(grow(side, centroids.size() * sizeof(float)).data(), centroids.data(), centroids.size() * sizeof(float));
    send(payload.bytes.data_ptr(), side.data(), side.size(), stream);
    const auto device_thresholds = sent_array<float>(x, thresholds);
    cuda::encode_search(x.data_ptr<float>(), n, device_thresholds.data(), bits_, words_at(payload, head), stream);
    return payload;
  }

  bool decode_into(torch::Tensor& x, const DevicePayload& in, ByteView) const override {
    const auto n = static_cast<std::size_t>(x.numel());
    const Stream stream = stream_of(x);
    const auto* const bytes = in.bytes.data_ptr<std::uint8_t>();
    const std::size_t count = fetch_one(reinterpret_cast<const std::uint32_t*>(bytes), stream);
    const std::size_t head = kCountBytes + count * sizeof(float);
    if (count == 0 || count > std::min(std::size_t{1} << bits_, n) || in.size != head + kernels::packed_bytes(n, bits_)) return false;
    const auto* const table = reinterpret_cast<const float*>(bytes + kCountBytes);
    for (const float centroid : fetch_array(table, count, stream)) {
      if (!std::isfinite(centroid)) return false;
    }
    cuda::decode_table(words_at(in, head), n, table, static_cast<unsigned>(count), bits_, x.data_ptr<float>(), stream);
    return true;
  }

 private:
  static constexpr std::size_t kCountBytes = sizeof(std::uint32_t);

  static std::uint32_t* words_at(const DevicePayload& payload, std::size_t offset) {
    return reinterpret_cast<std::uint32_t*>(payload.bytes.data_ptr<std::uint8_t>() + offset);
  }

  std::vector<Key> sample_of(const torch::Tensor& x, kernels::KeyRange range) const {
    const auto n = static_cast<std::size_t>(x.numel());
    const std::size_t m = std::min(n, fit_.sample);
    const DeviceArray<float> sample(x, m);
    cuda::sample_values(x.data_ptr<float>(), n, sample.data(), m, stream_of(x));
    std::vector<Key> keys;
    keys.reserve(m + 2);
    for (const float v : fetch_array(sample.data(), m, stream_of(x))) keys.push_back(kernels::value_key(v));
    if (m < n) keys.insert(keys.end(), {range.min, range.max});
    return keys;
  }

  unsigned bits_;
  KMeansFit fit_;
};

}  // namespace

std::unique_ptr<DeviceCodec> make_kmeans_device_codec(unsigned bits, KMeansFit fit) {
  return std::make_unique<KMeansDeviceCodec>(bits, std::move(fit));
}

}  // namespace epipe::codec
