#include "epipe/model/adapter.h"

#include <fmt/format.h>

#include <array>

#include "epipe/base/bounded_json.h"
#include "epipe/base/file.h"
#include "epipe/model/config_fields.h"
#include "epipe/model/hf_folder.h"
#include "epipe/model/safetensors.h"

namespace epipe::model {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxAdapterConfigBytes = 1 << 20;
constexpr std::string_view kAdapterPrefix = "base_model.model.";
// Options that would change the results, unless they are off.
constexpr std::array kMustBeFalse = {"use_dora", "use_rslora", "lora_bias", "use_qalora"};
constexpr std::array kMustBeEmpty = {"rank_pattern",      "alpha_pattern",     "layers_to_transform",
                                     "layer_replication", "target_parameters", "trainable_token_indices",
                                     "exclude_modules",   "megatron_config",   "alora_invocation_tokens"};

void read_targets(ConfigFields& fields, layer::LoraConfig& config) {
  const json* const targets = fields.find("target_modules");
  if (targets == nullptr || !targets->is_array() || targets->empty() || targets->size() > 64) {
    return fields.complain("expected target_modules to be a list of 1 to 64 names");
  }
  for (const json& target : *targets) {
    if (!target.is_string() || target.get<std::string>().size() > 128) return fields.complain("expected names in target_modules");
    const std::string name = target.get<std::string>();
    config.targets.push_back(name.substr(name.rfind('.') + 1));
  }
  std::sort(config.targets.begin(), config.targets.end());
}

}  // namespace

Result<layer::LoraConfig> read_adapter_config(const std::string& folder) {
  if (!is_folder(folder)) return bad_file(fmt::format("expected a folder with adapter_config.json, got {}", folder));
  const std::string path = folder + "/adapter_config.json";
  const auto bytes = read_file(path, kMaxAdapterConfigBytes);
  if (!bytes) return bytes.error();
  const auto parsed = parse_bounded_json({reinterpret_cast<const char*>(bytes.value().data()), bytes.value().size()});
  if (!parsed || !parsed.value().is_object()) return bad_file(fmt::format("{}: expected a JSON object", path));
  ConfigFields fields(parsed.value());
  layer::LoraConfig config;
  fields.text("peft_type", "LORA");
  fields.text("bias", "none");
  fields.size("r", config.rank, 1, 4096);
  fields.number("lora_alpha", config.alpha, 1e6);
  fields.number("lora_dropout", config.dropout, 1);
  for (const char* const name : kMustBeFalse) fields.only(name, false);
  for (const char* const name : kMustBeEmpty) {
    const json* const field = fields.find(name);
    if (field != nullptr && !field->empty()) fields.complain(fmt::format("expected no {}, got {}", name, ConfigFields::shown(*field)));
  }
  read_targets(fields, config);
  if (config.alpha <= 0) fields.complain("expected lora_alpha above 0");
  if (!fields.complaint().empty()) {
    return bad_file(fmt::format("{}: {}; for an adapter that is not plain LoRA, merge it into the weights with PEFT's merge_and_unload()",
                                path, fields.complaint()));
  }
  return config;
}

Result<Adapter> read_adapter(const std::string& folder) {
  auto config = read_adapter_config(folder);
  if (!config) return config.error();
  auto file = read_safetensors(folder + "/adapter_model.safetensors");
  if (!file) return file.error();
  Adapter adapter{std::move(config).value(), {}};
  for (auto& [name, tensor] : file.value().tensors) {
    if (!name.starts_with(kAdapterPrefix)) {
      return bad_file(
          fmt::format("{}/adapter_model.safetensors: expected names that begin with {}, got {}", folder, kAdapterPrefix, in_quotes(name)));
    }
    adapter.tensors[name.substr(kAdapterPrefix.size())] = tensor;
  }
  return adapter;
}

Result<void> write_adapter_config(const std::string& folder, const layer::LoraConfig& config, const AdapterTask& task) {
  json object = {{"peft_type", "LORA"},
                 {"task_type", task.type},
                 {"r", config.rank},
                 {"lora_alpha", config.alpha},
                 {"lora_dropout", config.dropout},
                 {"target_modules", config.targets},
                 {"bias", "none"},
                 {"fan_in_fan_out", task.input_first},
                 {"inference_mode", true},
                 {"init_lora_weights", true},
                 {"base_model_name_or_path", task.base.empty() ? json() : json(task.base)},
                 {"modules_to_save", task.head.empty() ? json() : json::array({task.head})}};
  const std::string text = object.dump(2) + "\n";
  return write_private_file(folder + "/adapter_config.json", {std::as_bytes(std::span(text))});
}

std::string adapter_name(const std::string& name) { return std::string(kAdapterPrefix) + name; }

}  // namespace epipe::model
