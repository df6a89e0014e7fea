#include "epipe/codec/cuda/memory.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

namespace epipe::codec {
namespace {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

// Looks for a moment, because most waits are short, and then leaves the core to others: a worker's computation takes longer.
void wait_for(cudaEvent_t event, const char* what) {
  using Clock = std::chrono::steady_clock;
  for (const auto end = Clock::now() + std::chrono::microseconds(50); Clock::now() < end;) {
    const cudaError_t status = cudaEventQuery(event);
    if (status != cudaErrorNotReady) return check(status, what);
    static_cast<void>(cudaGetLastError());  // "not ready" is no error of the next call
  }
  check(cudaEventSynchronize(event), what);
}

// Places of equal size in pinned memory that take turns, each with an event that says when its last copy is over.
class Places {
 public:
  Places(std::size_t count, std::size_t bytes) : bytes_(bytes), over_(count) {
    check(cudaMallocHost(&memory_, count * bytes), "pinned memory");
    for (cudaEvent_t& event : over_) check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "event");
  }
  ~Places() {
    for (const cudaEvent_t event : over_) cudaEventDestroy(event);
    cudaFreeHost(memory_);
  }
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;

  std::size_t bytes() const { return bytes_; }
  // The place that was used longest ago, when it is free.
  std::byte* next() {
    turn_ = (turn_ + 1) % over_.size();
    wait_for(over_[turn_], "copy");
    return static_cast<std::byte*>(memory_) + turn_ * bytes_;
  }
  // It is in use until what was queued so far is over.
  cudaEvent_t used(Stream stream) {
    check(cudaEventRecord(over_[turn_], stream), "event");
    return over_[turn_];
  }

 private:
  std::size_t bytes_;
  std::vector<cudaEvent_t> over_;
  void* memory_ = nullptr;
  std::size_t turn_ = 0;
};

// Pinned memory of one thread. Small copies have many places, so that a decoder or an encoder can queue all it sends without waiting.
class Staging {
 public:
  void to_device(std::byte* device, const std::byte* host, std::size_t bytes, Stream stream) {
    Places& places = places_for(bytes);
    for (std::size_t at = 0; at < bytes; at += places.bytes()) {
      const std::size_t part = std::min(places.bytes(), bytes - at);
      std::byte* const place = places.next();
      std::memcpy(place, host + at, part);
      check(cudaMemcpyAsync(device + at, place, part, cudaMemcpyHostToDevice, stream), "copy to the device");
      places.used(stream);
    }
  }

  // Copies part i + 1 over the bus while part i goes to its place.
  void to_host(std::byte* host, const std::byte* device, std::size_t bytes, Stream stream) {
    struct Part {
      std::byte* from = nullptr;
      std::byte* to = nullptr;
      std::size_t bytes = 0;
      cudaEvent_t over = nullptr;
    } before;
    const auto settle = [&] {
      if (before.bytes == 0) return;
      wait_for(before.over, "copy from the device");
      std::memcpy(before.to, before.from, before.bytes);
    };
    Places& places = places_for(bytes);
    for (std::size_t at = 0; at < bytes; at += places.bytes()) {
      const std::size_t part = std::min(places.bytes(), bytes - at);
      std::byte* const place = places.next();
      check(cudaMemcpyAsync(place, device + at, part, cudaMemcpyDeviceToHost, stream), "copy from the device");
      const cudaEvent_t over = places.used(stream);
      settle();
      before = {place, host + at, part, over};
    }
    settle();
  }

 private:
  Places& places_for(std::size_t bytes) { return bytes <= small_.bytes() ? small_ : large_; }

  Places small_{16, std::size_t{512} << 10U};
  Places large_{2, std::size_t{4} << 20U};
};

Staging& staging() {
  thread_local Staging own;
  return own;
}

}  // namespace

void fetch(void* host, const void* device, std::size_t bytes, Stream stream) {
  staging().to_host(static_cast<std::byte*>(host), static_cast<const std::byte*>(device), bytes, stream);
}

void send(void* device, const void* host, std::size_t bytes, Stream stream) {
  staging().to_device(static_cast<std::byte*>(device), static_cast<const std::byte*>(host), bytes, stream);
}

void clear(void* device, std::size_t bytes, Stream stream) { check(cudaMemsetAsync(device, 0, bytes, stream), "clearing"); }

void copy(void* to, const void* from, std::size_t bytes, Stream stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "copy on the device");
}

}  // namespace epipe::codec
