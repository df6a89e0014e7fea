#pragma once

#include <torch/types.h>

#include <map>
#include <string>
#include <string_view>

#include "epipe/base/result.h"

namespace epipe::model {

// Weights by their full name, "features.0.0.weight".
using NamedTensors = std::map<std::string, torch::Tensor>;

// Whether both have the same names and shapes; the error lists names that are missing, extra or of another shape, sorted.
Result<void> check_fits(const NamedTensors& from, const NamedTensors& to);

// Copies the values of `from` into the tensors of `to`, converted to their dtype and device. All or nothing: where they do
// not fit, no tensor changes.
Result<void> load_into(const NamedTensors& from, const NamedTensors& to);

// A name from outside as messages show it: in quotes, printable, not long.
std::string in_quotes(std::string_view name);

}  // namespace epipe::model
