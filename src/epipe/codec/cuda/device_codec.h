#pragma once

#include <torch/types.h>

#include <memory>
#include <optional>

#include "epipe/codec/codec.h"

// The side of a codec that works where the tensor lies: on a CUDA device. Its payloads are those of the codec, bit for bit,
// but for codecs of a fixed error, whose step may differ in its last bits, and for lowrank and power, whose factors are rounded otherwise.
// Decoding is the same to the bit for all.
namespace epipe::codec {

// `bytes` is a uint8 tensor on the device, aligned to 16 bytes and at least 16 bytes longer than the payload.
struct DevicePayload {
  torch::Tensor bytes;
  std::size_t size = 0;
  Bytes front = {};     // its first bytes, where the encoder made them on the host: a decoder then fetches nothing
  bool is_own = false;  // encoded in this process and never outside the device: whether it is sound need not be waited for
  torch::Tensor fault = {};  // a word on the device, not 0 if the tensor cannot be encoded; undefined where that is known already
};

// Work is queued on the current stream of x's device, and waited for on that stream alone.
class DeviceCodec {
 public:
  virtual ~DeviceCodec() = default;
  // x is contiguous float32 on a device, not empty. nullopt when the codec itself has to do it: mostly to give an error. The same holds if
  // `fault` is not 0 later.
  virtual std::optional<DevicePayload> encode(const torch::Tensor& x, const EncodeContext& at) = 0;
  // Fills x, contiguous float32 on the payload's device, not empty; its length was checked. False when the payload is none of this codec,
  // which takes a wait unless it is our own. `host` is the same payload where the caller has it in host memory, else empty.
  virtual bool decode_into(torch::Tensor& x, const DevicePayload& in, ByteView host) const = 0;
  virtual State state() const { return {}; }
  virtual void set_state(const State&) {}
};

// A codec that takes tensors on any device: through its device codec where it has one, else by way of the host.
class AnyDeviceCodec : public Codec {
 public:
  // As encode(), but the payload stays where x is, and whether the tensor could be encoded may be known later (`fault`). nullopt where the
  // host has to do it, and the state is as before.
  virtual std::optional<DevicePayload> encode_on_device(const torch::Tensor& x, const EncodeContext& at) = 0;
  // Queues the decoding of such a payload, and waits for nothing. x is contiguous float32 on the payload's device, not empty.
  virtual void decode_on_device(torch::Tensor& x, const DevicePayload& in) const = 0;
};
std::unique_ptr<Codec> on_any_device(std::unique_ptr<Codec> codec);

// Waits until it is known whether the tensor could be encoded: nullopt if not. The payload's device is the current one.
std::optional<DevicePayload> settled(std::optional<DevicePayload> payload);

// A buffer of uninitialised bytes on x's device, with the room a DevicePayload needs.
DevicePayload new_payload(const torch::Tensor& x, std::size_t size);

// A part of a payload as a payload of its own, with zeros behind it.
DevicePayload part_of(const DevicePayload& in, std::size_t begin, std::size_t size);

}  // namespace epipe::codec
