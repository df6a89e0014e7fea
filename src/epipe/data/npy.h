#pragma once

#include <torch/types.h>

#include <string>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"

// NumPy's .npy files: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
namespace epipe::data {

// The float32 array in a file's bytes, in C or Fortran order, any shape. For untrusted bytes.
Result<torch::Tensor> parse_npy(ByteView bytes);
Result<torch::Tensor> read_npy(const std::string& path);
// The same, also for float64, bool and the integer types LibTorch supports.
Result<torch::Tensor> parse_npy_any(ByteView bytes);
Result<torch::Tensor> read_npy_any(const std::string& path);

// float32
Result<void> write_npy(const std::string& path, const torch::Tensor& x);

}  // namespace epipe::data
