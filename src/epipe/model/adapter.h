#pragma once

#include <string>

#include "epipe/base/result.h"
#include "epipe/layer/lora.h"
#include "epipe/model/named_tensors.h"

// A LoRA adapter in PEFT's format: a folder with adapter_config.json and adapter_model.safetensors.
namespace epipe::model {

struct Adapter {
  layer::LoraConfig config;
  NamedTensors tensors;  // under the model's names: "model.layers.0.self_attn.q_proj.lora_A.weight"
};

// For untrusted files. A PEFT option that is not supported (DoRA, rank patterns, ...) is an error that names it.
Result<layer::LoraConfig> read_adapter_config(const std::string& folder);
Result<Adapter> read_adapter(const std::string& folder);

struct AdapterTask {
  std::string base;          // where the base model's weights are; empty: unknown
  std::string type;          // PEFT's name of the task: "CAUSAL_LM", "SEQ_CLS"
  bool input_first = false;  // the model stores weights [in, out], like GPT-2
  std::string head{};        // a module saved whole beside the thin matrices; empty: none
};
Result<void> write_adapter_config(const std::string& folder, const layer::LoraConfig& config, const AdapterTask& task);
// The name of a parameter in adapter_model.safetensors.
std::string adapter_name(const std::string& name);

}  // namespace epipe::model
