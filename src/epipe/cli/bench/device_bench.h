#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace epipe::cli {

struct DeviceBenchFlags {
  std::string device;
  std::vector<std::string> codecs;  // empty: those that have kernels
  std::vector<std::int64_t> shape = {256, 32, 112, 112};
  int rounds = 20;
  bool json = false;
};

// `epipe bench codec --device cuda:0`: codecs on tensors that lie on a device, payloads left there.
void run_device_bench(const DeviceBenchFlags& flags);

}  // namespace epipe::cli
