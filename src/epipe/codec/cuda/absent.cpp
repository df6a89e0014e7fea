// A build without CUDA: codecs have no device codecs, because there are no tensors on devices.
#include <stdexcept>

#include "epipe/codec/cuda/device_codecs.h"

namespace epipe::codec {

std::unique_ptr<DeviceCodec> make_plain_device_codec(PlainFormat) { return nullptr; }
std::unique_ptr<DeviceCodec> make_run_device_codec(RunBorders, unsigned, unsigned) { return nullptr; }
std::unique_ptr<DeviceCodec> make_kmeans_device_codec(unsigned, KMeansFit) { return nullptr; }
std::unique_ptr<DeviceCodec> make_topk_device_codec(TopKShape, std::unique_ptr<DeviceCodec>) { return nullptr; }
std::unique_ptr<DeviceCodec> make_lowrank_device_codec(FactorForm, std::vector<std::unique_ptr<DeviceCodec>>) { return nullptr; }
std::unique_ptr<DeviceCodec> make_power_device_codec(FactorForm, std::vector<std::unique_ptr<DeviceCodec>>) { return nullptr; }
std::unique_ptr<DeviceCodec> make_entropy_device_codec(EntropyKind, EntropyTarget) { return nullptr; }
std::unique_ptr<Codec> on_any_device(std::unique_ptr<Codec> codec) { return codec; }

std::optional<DevicePayload> settled(std::optional<DevicePayload> payload) { return payload; }
DevicePayload new_payload(const torch::Tensor&, std::size_t) { throw std::logic_error("this epipe was built without CUDA"); }

}  // namespace epipe::codec
