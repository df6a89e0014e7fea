#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epipe/base/result.h"
#include "epipe/model/safetensors.h"

// The JSON part of a safetensors file.
namespace epipe::model {

inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // as in the reference implementation
inline constexpr std::size_t kMaxDims = 64;                    // what LibTorch's operators take

struct TensorEntry {
  std::string name;
  torch::ScalarType dtype{};
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // bytes from the start of the data
  std::uint64_t end = 0;
};

struct SafeTensorsHeader {
  std::vector<TensorEntry> tensors;  // in the order of their data
  Metadata metadata;
};

// Where a dtype comes in a file, large values first; nullopt where the format has no name for it.
std::optional<std::size_t> dtype_order(torch::ScalarType dtype);

// The tensor as its bytes go into a file: on the CPU and contiguous. And those bytes.
Result<torch::Tensor> dense_for_file(const std::string& name, const torch::Tensor& x);
ByteView dense_bytes(const torch::Tensor& dense);

// A header whose tensors cover `data_bytes` bytes exactly, each with the length its shape and dtype need.
Result<SafeTensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes);

// The header padded to a multiple of 8 bytes.
Result<std::string> format_safetensors_header(const SafeTensorsHeader& header);

}  // namespace epipe::model
