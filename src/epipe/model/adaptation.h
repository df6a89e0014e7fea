#pragma once

#include <optional>
#include <vector>

#include "epipe/layer/lora.h"
#include "epipe/model/architecture.h"

namespace epipe::model {

// Which parameters of a model are trained, and how the others are stored.
struct Adaptation {
  std::vector<std::size_t> frozen{};        // layers that are not trained
  std::optional<layer::LoraConfig> lora{};  // train only thin matrices beside linear layers, and the task head
  bool half_base = false;                   // store matrices that are not trained in bfloat16
};

// Adapts all layers made from now on. Throws std::invalid_argument if no layer has any of LoRA's targets; to check this, it makes the
// layers.
void adapt(Architecture& architecture, const Adaptation& adaptation);

// The index of the first layer with a trainable parameter; the number of layers if there is none. Makes layers one at a time.
std::size_t first_trained(const Architecture& architecture);

}  // namespace epipe::model
