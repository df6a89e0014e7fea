#include "epipe/codec/cuda/memory.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>

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

// Pinned memory of one thread, two halves that take turns, each with an event that says when its last copy is over.
class Staging {
 public:
  static constexpr std::size_t kHalf = std::size_t{4} << 20U;

  Staging() {
    check(cudaMallocHost(&memory_, 2 * kHalf), "pinned memory");
    for (cudaEvent_t& event : over_) check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "event");
  }
  ~Staging() {
    for (const cudaEvent_t event : over_) cudaEventDestroy(event);
    cudaFreeHost(memory_);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void to_device(std::byte* device, const std::byte* host, std::size_t bytes, Stream stream) {
    for (std::size_t at = 0; at < bytes; at += kHalf) {
      const std::size_t part = std::min(kHalf, bytes - at);
      std::byte* const half = next();
      std::memcpy(half, host + at, part);
      check(cudaMemcpyAsync(device + at, half, part, cudaMemcpyHostToDevice, stream), "copy to the device");
      check(cudaEventRecord(over_[turn_], stream), "event");
    }
  }

  // Copies part i + 1 over the bus while part i goes to its place.
  void to_host(std::byte* host, const std::byte* device, std::size_t bytes, Stream stream) {
    struct Part {
      std::byte* from = nullptr;
      std::byte* to = nullptr;
      std::size_t bytes = 0;
      unsigned turn = 0;
    } before;
    const auto settle = [&] {
      if (before.bytes == 0) return;
      wait_for(over_[before.turn], "copy from the device");
      std::memcpy(before.to, before.from, before.bytes);
    };
    for (std::size_t at = 0; at < bytes; at += kHalf) {
      const std::size_t part = std::min(kHalf, bytes - at);
      std::byte* const half = next();
      check(cudaMemcpyAsync(half, device + at, part, cudaMemcpyDeviceToHost, stream), "copy from the device");
      check(cudaEventRecord(over_[turn_], stream), "event");
      settle();
      before = {half, host + at, part, turn_};
    }
    settle();
  }

 private:
  std::byte* next() {
    turn_ = 1 - turn_;
    wait_for(over_[turn_], "copy");
    return static_cast<std::byte*>(memory_) + turn_ * kHalf;
  }

  void* memory_ = nullptr;
  cudaEvent_t over_[2] = {};  // NOLINT(*-avoid-c-arrays)
  unsigned turn_ = 0;
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
