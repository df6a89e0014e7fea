#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace epipe::cli {

struct DeviceBenchFlags {
  std::string device;
  std::vector<std::string> codecs;  // empty: all codecs with kernels
  std::vector<std::int64_t> shape = {256, 32, 112, 112};
  int rounds = 20;
  bool json = false;
};

// `epipe bench codec --device cuda:0`: codecs on device tensors; payloads stay on the device.
void run_device_bench(const DeviceBenchFlags& flags);

}  // namespace epipe::cli
