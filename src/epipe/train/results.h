#pragma once

#include <string>

#include "epipe/train/assemble.h"

// The result of a finished run: model.safetensors, or a LoRA adapter.
namespace epipe::train {

// Writes layer by layer, as the weights arrive from their processes.
void write_results(const TrainConfig& config, RunParts& run);
// Whether it was written.
bool has_result(const std::string& run_dir, const Plan& plan);

// The data by which PEFT finds the model of an adapter.
model::AdapterTask adapter_task(const TrainConfig& config, const model::Architecture& architecture, const data::DataSpec& data);

}  // namespace epipe::train
