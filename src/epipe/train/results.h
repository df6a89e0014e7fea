#pragma once

#include <string>

#include "epipe/train/assemble.h"

// What a run leaves when all its steps are done: model.safetensors, or the adapter of LoRA.
namespace epipe::train {

// Layer by layer, as the weights come from their processes.
void write_results(const TrainConfig& config, RunParts& run);
// Whether it was written.
bool has_result(const std::string& run_dir, const Plan& plan);

// How PEFT finds the model of an adapter.
model::AdapterTask adapter_task(const TrainConfig& config, const model::Architecture& architecture, const data::DataSpec& data);

}  // namespace epipe::train
