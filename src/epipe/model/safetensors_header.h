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
inline constexpr std::size_t kMaxDims = 64;                    // the limit of LibTorch's operators

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

// The position of a dtype in a file, large values first; nullopt if the format has no name for it.
std::optional<std::size_t> dtype_order(torch::ScalarType dtype);

// The tensor as it is written to a file, on the CPU and contiguous; and its bytes.
Result<torch::Tensor> dense_for_file(const std::string& name, const torch::Tensor& x);
ByteView dense_bytes(const torch::Tensor& dense);

// Parses a header and checks that its tensors cover `data_bytes` bytes exactly, each with the length its shape and dtype need.
Result<SafeTensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes);

// The header padded to a multiple of 8 bytes.
Result<std::string> format_safetensors_header(const SafeTensorsHeader& header);

}  // namespace epipe::model
