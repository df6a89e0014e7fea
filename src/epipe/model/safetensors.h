#pragma once

#include <map>
#include <string>

#include "epipe/base/bytes.h"
#include "epipe/base/mapped_file.h"
#include "epipe/base/result.h"
#include "epipe/model/named_tensors.h"

// Weights as safetensors: https://github.com/huggingface/safetensors#format
//
//   8 bytes  N, little-endian
//   N bytes  JSON {"__metadata__": {"key": "text"}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}, then blanks
//   rest     the values; the tensors cover every byte exactly once
namespace epipe::model {

using Metadata = std::map<std::string, std::string>;

struct SafeTensors {
  NamedTensors tensors;
  Metadata metadata;
};

// The tensors in a file's bytes, copied to the CPU. For untrusted bytes; allocates in proportion to `bytes`.
Result<SafeTensors> parse_safetensors(ByteView bytes);

// The same for a mapped file: the tensors are views into it, read from disk on access, except unaligned ones. They must not be written to.
Result<SafeTensors> parse_safetensors(const std::shared_ptr<MappedFile>& file);

// The file's bytes for tensors with any strides on any device. Equal input gives equal bytes, in the reference implementation's order:
// dtypes of large values first, which aligns all of them, then by name.
Result<Bytes> serialize_safetensors(const NamedTensors& tensors, const Metadata& metadata = {});

Result<SafeTensors> read_safetensors(const std::string& path);
// Only its owner can read the file.
Result<void> write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});

}  // namespace epipe::model
