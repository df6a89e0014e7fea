#pragma once

#include <string>
#include <vector>

#include "epipe/model/adaptation.h"
#include "epipe/train/config.h"
#include "epipe/train/plan.h"
#include "epipe/train/registry.h"

// Which parameters are trained, from --lora, --adapter, --freeze and --base-precision.
namespace epipe::train {

// The layers that a flag such as --freeze names: by name, index, or a range of indices such as 0-3; ascending. Throws
// std::invalid_argument.
std::vector<std::size_t> layers_named(std::string_view flag, const std::vector<std::string>& names,
                                      const model::Architecture& architecture);

// The complete text of --lora: from the adapter if there is one, with the architecture's targets if none are named; empty: no LoRA. Throws
// std::invalid_argument, and std::runtime_error if the adapter cannot be read.
std::string whole_lora(const TrainConfig& config, const model::Architecture& architecture);

model::Adaptation adaptation_of(const Plan& plan);
// The same from flags, for an architecture before adaptation.
model::Adaptation adaptation_of(const TrainConfig& config, const model::Architecture& architecture);

// The layers of a model, adapted.
model::Architecture make_architecture(const Registry& registry, const std::string& model, const data::DataSpec& data, std::uint64_t seed,
                                      const model::Adaptation& adaptation);

}  // namespace epipe::train
