#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epipe/base/result.h"

// A folder written by Hugging Face's transformers: config.json, model.safetensors or several files with their index, tokenizer.json.
namespace epipe::model {

// DIR of the model name "hf:DIR"; nullopt for any other name, or if the text of a config stands in place of DIR.
std::optional<std::string> hf_folder_of(std::string_view model);

// The text of DIR/config.json.
Result<std::string> read_hf_config(const std::string& folder);

// The weights files of a folder: model.safetensors, or the files listed in model.safetensors.index.json, each once. An error if there is
// neither, or if the index names a file that is not in the same folder.
Result<std::vector<std::string>> hf_weight_files(const std::string& folder);
bool has_hf_weights(const std::string& folder);

}  // namespace epipe::model
