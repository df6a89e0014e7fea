#pragma once

#include <torch/types.h>

#include <map>
#include <string>
#include <string_view>

#include "epipe/base/result.h"

namespace epipe::model {

// Weights by full name, "features.0.0.weight".
using NamedTensors = std::map<std::string, torch::Tensor>;

// Checks that both have the same names and shapes; the error lists missing and extra names and different shapes, sorted by name.
Result<void> check_fits(const NamedTensors& from, const NamedTensors& to);

// Copies the values of `from` into the tensors of `to`, converted to their dtype and device. All or nothing: if they do not fit, no tensor
// changes.
Result<void> load_into(const NamedTensors& from, const NamedTensors& to);

// An untrusted name for error messages: in quotes, printable, shortened.
std::string in_quotes(std::string_view name);

}  // namespace epipe::model
