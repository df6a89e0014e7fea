#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "epipe/layer/layer.h"

namespace epipe::model {

// How to make one layer. Cheap to hold: make() allocates the weights, unless the layers come from a module that is there as a whole (a
// TorchScript file, a user's Sequential). Then every make() returns the same layer, so who only looks takes an architecture of its own.
struct LayerMaker {
  std::string name;  // of the layer it makes
  std::function<std::shared_ptr<layer::Layer>()> make;
};

// A network before anybody needs its weights: the layers of a model, by the names that cuts give them.
struct Architecture {
  std::string name{};
  std::vector<LayerMaker> layers{};
  std::vector<std::string> notes{};   // what its user must know, one sentence each
  std::string single_layer_reason{};  // why it is one layer where a user may expect several; empty: it is as it is
  // Where the first and the last layer share weights: makes them do so, once they are made; layers of other processes are null. Both must
  // be on one worker.
  std::function<void(const std::vector<std::shared_ptr<layer::Layer>>&)> share{};
  bool task_head = true;                    // the last layer is made for the data: beside LoRA, it is trained whole
  bool input_first = false;                 // linear layers keep weights [in, out]
  std::vector<std::string> lora_targets{};  // the linear layers that LoRA adapts unless told otherwise, by the last part of their names
};

// Makes T(arguments...), which has this name.
template <typename T, typename... Arguments>
LayerMaker maker(std::string name, Arguments... arguments) {
  return {std::move(name), [=] { return std::make_shared<T>(arguments...); }};
}

// Makes T(name, arguments...).
template <typename T, typename... Arguments>
LayerMaker named_maker(const std::string& name, Arguments... arguments) {
  return maker<T>(name, name, arguments...);
}

// For a user who wants to cut an architecture of one layer: that, the reason, and what to do.
std::string cannot_be_cut(const Architecture& architecture);

}  // namespace epipe::model
