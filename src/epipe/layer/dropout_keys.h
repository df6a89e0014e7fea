#pragma once

#include <torch/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "epipe/layer/layer.h"

namespace epipe::layer {

// The keys of dropout (random.h) for a forward that is recorded once and run many times: on the device, at places that do not change.
class DropoutKeys {
 public:
  DropoutKeys(std::int64_t samples, torch::Device device);
  // While recording: where the keys of this name will be, int64 [samples]. A name may be taken several times. Throws NotCapturable when
  // there are too many.
  torch::Tensor take(const ForwardContext& at, std::string_view name);
  // Before each run, on the thread's current stream: those of its step and samples, whose number is the recording's.
  void write(const ForwardContext& at);

 private:
  torch::Tensor all_;  // int64 [kMost, samples], on the device
  std::vector<std::string> names_;
};

}  // namespace epipe::layer
