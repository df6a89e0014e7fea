#pragma once

#include <optional>
#include <vector>

#include "epipe/layer/lora.h"
#include "epipe/model/architecture.h"

namespace epipe::model {

// Which parameters of a model are trained, and how the others are kept.
struct Adaptation {
  std::vector<std::size_t> frozen{};        // layers that stay as they are
  std::optional<layer::LoraConfig> lora{};  // thin matrices beside linear layers are trained, and a task's head; nothing else
  bool half_base = false;                   // matrices that are not trained are kept in bfloat16
};

// Layers that are made from now on are adapted. Throws std::invalid_argument where LoRA finds none of its targets in any layer, which takes
// making them.
void adapt(Architecture& architecture, const Adaptation& adaptation);

// The index of the first layer with a parameter to train; the number of layers where there is none. Makes layers one at a time.
std::size_t first_trained(const Architecture& architecture);

}  // namespace epipe::model
