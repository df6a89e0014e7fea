#pragma once

#include <torch/types.h>

#include <string>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"

// NumPy's .npy files of float32: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
namespace epipe::data {

// The array of a file's bytes, in C or Fortran order, any shape. Trusts nothing.
Result<torch::Tensor> parse_npy(ByteView bytes);

Result<torch::Tensor> read_npy(const std::string& path);
Result<void> write_npy(const std::string& path, const torch::Tensor& x);

}  // namespace epipe::data
