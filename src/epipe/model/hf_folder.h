#pragma once

#include <string>
#include <vector>

#include "epipe/base/result.h"

// A folder as Hugging Face's transformers writes it: config.json, model.safetensors or several files with their index, tokenizer.json.
namespace epipe::model {

bool is_folder(const std::string& path);

// The text of DIR/config.json.
Result<std::string> read_hf_config(const std::string& folder);

// The weights files of a folder: model.safetensors, or those that model.safetensors.index.json names, each once. An error where there is
// neither, or where the index names a file that is not beside it.
Result<std::vector<std::string>> hf_weight_files(const std::string& folder);
bool has_hf_weights(const std::string& folder);

}  // namespace epipe::model
