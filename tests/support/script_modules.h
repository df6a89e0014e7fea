#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/types.h>

#include <string>

// TorchScript modules made here, without Python.
namespace epipe::testing {

inline torch::jit::Module script_linear(std::int64_t in, std::int64_t out) {
  torch::jit::Module module("Linear");
  module.register_parameter("weight", (0.3 * torch::randn({out, in})).requires_grad_(), false);
  module.register_parameter("bias", torch::randn({out}).requires_grad_(), false);
  module.define("def forward(self, x):\n  return torch.linear(x, self.weight, self.bias)\n");
  return module;
}

// Children a [6 -> 8], b [8 -> 8] and c [8 -> outputs], and a forward of these lines.
inline torch::jit::Module script_module(const std::string& forward, std::int64_t outputs = 3) {
  torch::manual_seed(7);
  torch::jit::Module module("Net");
  module.register_module("a", script_linear(6, 8));
  module.register_module("b", script_linear(8, 8));
  module.register_module("c", script_linear(8, outputs));
  module.define("def forward(self, x):\n  " + forward + "\n");
  return module;
}

inline constexpr const char* kChain = "return self.c.forward(self.b.forward(self.a.forward(x)))";
inline constexpr const char* kOwnForward = "return self.c.forward(torch.relu(self.b.forward(self.a.forward(x)))) * 100";

}  // namespace epipe::testing
