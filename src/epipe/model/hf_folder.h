#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epipe/base/result.h"

// A folder as Hugging Face's transformers writes it: config.json, model.safetensors or several files with their index, tokenizer.json.
namespace epipe::model {

// DIR of a model's name "hf:DIR"; nothing where the name is another one, or has the text of a config instead.
std::optional<std::string> hf_folder_of(std::string_view model);

// The text of DIR/config.json.
Result<std::string> read_hf_config(const std::string& folder);

// The weights files of a folder: model.safetensors, or those that model.safetensors.index.json names, each once. An error where there is
// neither, or where the index names a file that is not beside it.
Result<std::vector<std::string>> hf_weight_files(const std::string& folder);
bool has_hf_weights(const std::string& folder);

}  // namespace epipe::model
