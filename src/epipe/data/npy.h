#pragma once

#include <torch/types.h>

#include <string>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"

// NumPy's .npy files: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
namespace epipe::data {

// The float32 array of a file's bytes, in C or Fortran order, any shape. Trusts nothing.
Result<torch::Tensor> parse_npy(ByteView bytes);
Result<torch::Tensor> read_npy(const std::string& path);
// The same for float64, bool and the integers LibTorch has as well.
Result<torch::Tensor> parse_npy_any(ByteView bytes);
Result<torch::Tensor> read_npy_any(const std::string& path);

// float32
Result<void> write_npy(const std::string& path, const torch::Tensor& x);

}  // namespace epipe::data
