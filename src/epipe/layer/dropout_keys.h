#pragma once

#include <torch/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "epipe/layer/layer.h"

namespace epipe::layer {

// The keys of dropout (random.h) for a forward that is recorded once and run many times: on the device, at fixed addresses.
class DropoutKeys {
 public:
  DropoutKeys(std::int64_t samples, torch::Device device);
  // While recording: the tensor that will hold the keys of this name, int64 [samples]. A name may be taken several times. Throws
  // NotCapturable if there are too many names.
  torch::Tensor take(const ForwardContext& at, std::string_view name);
  // Call before each run, on the thread's current stream: writes the keys for its step and samples, as many as in the recording.
  void write(const ForwardContext& at);

 private:
  torch::Tensor all_;  // int64 [kMost, samples], on the device
  std::vector<std::string> names_;
};

}  // namespace epipe::layer
