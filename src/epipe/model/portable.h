#pragma once

#include <string>
#include <string_view>

namespace epipe::model {

// The name by which another machine can build the same model: "roberta:DIR" becomes "roberta:{...}" with what its config.json says; other
// names stay. Throws std::invalid_argument where the file is not there or does not fit.
std::string portable_name(std::string_view name);

// Whether a model of this name is built without opening a file.
bool is_portable(std::string_view name);

}  // namespace epipe::model
