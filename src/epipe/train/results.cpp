#include "epipe/train/results.h"

#include <fmt/format.h>
#include <unistd.h>

#include "epipe/base/file.h"
#include "epipe/model/hf_folder.h"
#include "epipe/model/safetensors_writer.h"

namespace epipe::train {
namespace {

constexpr std::string_view kWeights = "model.safetensors";
constexpr std::string_view kAdapter = "adapter";
constexpr std::string_view kAdapterWeights = "adapter/adapter_model.safetensors";

std::string in(const std::string& folder, std::string_view name) { return fmt::format("{}/{}", folder, name); }

// W + scale * B A, under W's name, without the thin matrices.
model::NamedTensors merged(const model::NamedTensors& layer, const layer::LoraConfig& lora, bool input_first) {
  model::NamedTensors all;
  for (const auto& [name, tensor] : layer) {
    if (!layer::is_lora(name)) all[name] = tensor;
  }
  constexpr std::string_view kA = "lora_A.weight";
  for (const auto& [name, a] : layer) {
    if (!name.ends_with(kA)) continue;
    const std::string base = name.substr(0, name.size() - kA.size());
    const auto product = torch::matmul(layer.at(base + "lora_B.weight"), a) * lora.scale();
    all.at(base + "weight") = all.at(base + "weight").to(torch::kFloat32) + (input_first ? product.t() : product);
  }
  return all;
}

void write_adapter(const std::string& run_dir, const layer::LoraConfig& lora, RunParts& run) {
  require(make_private_folders(in(run_dir, kAdapter)));
  model::SafetensorsWriter file(in(run_dir, kAdapterWeights));
  run.coordinator->visit_weights(
      [&](const model::NamedTensors& layer) {
        model::NamedTensors named;
        for (const auto& [name, tensor] : layer) named[model::adapter_name(name)] = tensor;
        require(file.add(named));
      },
      /*trained_only=*/true);
  require(model::write_adapter_config(in(run_dir, kAdapter), lora, run.adapter_task));
  require(file.finish({{"format", "pt"}}));
}

}  // namespace

void write_results(const TrainConfig& config, RunParts& run) {
  const bool with_lora = !run.plan.lora.empty();
  const auto lora = with_lora ? layer::parse_lora(run.plan.lora) : layer::LoraConfig();
  if (!with_lora || config.merge_adapter) {
    model::SafetensorsWriter file(in(config.run_dir, kWeights));
    run.coordinator->visit_weights([&](const model::NamedTensors& layer) {
      require(file.add(with_lora ? merged(layer, lora, run.adapter_task.input_first) : layer));
    });
    require(file.finish({{"model", config.model}}));
  }
  if (with_lora) write_adapter(config.run_dir, lora, run);
}

bool has_result(const std::string& run_dir, const Plan& plan) {
  return ::access(in(run_dir, plan.lora.empty() ? kWeights : kAdapterWeights).c_str(), F_OK) == 0;
}

model::AdapterTask adapter_task(const TrainConfig& config, const model::Architecture& architecture, const data::DataSpec& data) {
  model::AdapterTask task;
  task.type = data.next_token ? "CAUSAL_LM" : "SEQ_CLS";
  task.base = model::hf_folder_of(config.model).value_or("");
  task.input_first = architecture.input_first;
  if (architecture.task_head) task.head = architecture.layers.back().name;
  return task;
}

}  // namespace epipe::train
