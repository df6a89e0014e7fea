#pragma once

#include <c10/cuda/CUDAStream.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "epipe/base/bytes.h"
#include "epipe/codec/cuda/device_codec.h"
#include "epipe/codec/kernels/cuda/stream.h"

// Device memory from LibTorch's caching allocator, and small copies to and from it on the current stream.
namespace epipe::codec {

using kernels::cuda::Stream;

inline Stream stream_of(const torch::Tensor& x) { return c10::cuda::getCurrentCUDAStream(x.device().index()).stream(); }

// Uninitialised memory for `count` objects on x's device, freed when the last copy goes.
template <typename T>
class DeviceArray {
 public:
  DeviceArray(const torch::Tensor& x, std::size_t count)
      : bytes_(torch::empty({static_cast<std::int64_t>(count * sizeof(T) + 16)}, x.options().dtype(torch::kUInt8).requires_grad(false))),
        count_(count) {}
  T* data() const { return reinterpret_cast<T*>(bytes_.data_ptr<std::uint8_t>()); }
  std::size_t size() const { return count_; }

 private:
  torch::Tensor bytes_;
  std::size_t count_;
};

// One uninitialised word, as a tensor.
inline torch::Tensor new_word(const torch::Tensor& x) { return torch::empty({1}, x.options().dtype(torch::kInt32).requires_grad(false)); }

// Copies by way of pinned memory. fetch() waits for the stream; send() does not, but for a place of its own among the last ones of this
// thread: 16 of up to 512 KB, two of more.
void fetch(void* host, const void* device, std::size_t bytes, Stream stream);
void send(void* device, const void* host, std::size_t bytes, Stream stream);
void clear(void* device, std::size_t bytes, Stream stream);
void copy(void* to, const void* from, std::size_t bytes, Stream stream);  // both on the device

template <typename T>
T fetch_one(const T* device, Stream stream) {
  T value;
  fetch(&value, device, sizeof(T), stream);
  return value;
}

// Whether a decoder's kernels left *flag at 0; for payloads of our own that is known and nothing is waited for.
template <typename T>
bool sound(const T* flag, const DevicePayload& in, Stream stream) {
  return in.is_own || static_cast<std::uint32_t>(fetch_one(flag, stream)) == 0;
}

template <typename T>
std::vector<T> fetch_array(const T* device, std::size_t count, Stream stream) {
  std::vector<T> values(count);
  fetch(values.data(), device, count * sizeof(T), stream);
  return values;
}

template <typename T>
DeviceArray<T> sent_array(const torch::Tensor& x, std::span<const T> host) {
  DeviceArray<T> array(x, host.size());
  send(array.data(), host.data(), host.size_bytes(), stream_of(x));
  return array;
}

// Small arrays that go to x's device in one copy. add() all of them, then send(), then ask where they are.
class SentArrays {
 public:
  template <typename T>
  struct Place {
    std::size_t at;
  };

  explicit SentArrays(const torch::Tensor& x) : x_(x) {}
  template <typename T>
  Place<T> add(std::span<const T> array) {
    const std::size_t at = host_.size();
    append_bytes(host_, std::as_bytes(array));
    host_.resize((host_.size() + 15) / 16 * 16);
    return {at};
  }
  void send() { there_.emplace(sent_array<std::byte>(x_, host_)); }
  template <typename T>
  const T* operator[](Place<T> place) const {
    return reinterpret_cast<const T*>(there_->data() + place.at);
  }

 private:
  torch::Tensor x_;
  Bytes host_;
  std::optional<DeviceArray<std::byte>> there_;
};

}  // namespace epipe::codec
