#pragma once

#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

#include "epipe/base/result.h"

namespace epipe::model {

struct ScriptChild {
  std::string name;  // "0", or "features.0" for a child of a module that only calls it
  torch::jit::Module module;
};

// The children of a module whose forward only passes its input through them, like an nn.Sequential, scripted or traced; in the order of
// the calls. Calling them one after the other then equals its forward. The error says what else its forward does.
//
//   %2 = prim::GetAttr[name="0"](%self)
//   %3 = prim::GetAttr[name="1"](%self)
//   %4 = prim::CallMethod[name="forward"](%2, %x)
//   %5 = prim::CallMethod[name="forward"](%3, %4)
//   return (%5)
Result<std::vector<ScriptChild>> chain_of(const torch::jit::Module& module);

}  // namespace epipe::model
