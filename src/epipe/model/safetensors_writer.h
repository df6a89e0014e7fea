#pragma once

#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "epipe/model/safetensors.h"
#include "epipe/model/safetensors_header.h"

namespace epipe::model {

// Writes a safetensors file from tensors that are not all in memory at once: they wait in an unnamed file in the same folder until the last
// one is added. The result equals the file of write_safetensors().
class SafetensorsWriter {
 public:
  explicit SafetensorsWriter(std::string path);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  Result<void> add(const NamedTensors& tensors);
  // Call once. Until then there is no file, or the previous one.
  Result<void> finish(const Metadata& metadata);

 private:
  struct Waiting {
    std::string name;
    torch::ScalarType dtype{};
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0;  // in the waiting file
    std::uint64_t bytes = 0;
  };
  Error io_error() const;
  SafeTensorsHeader header(const Metadata& metadata) const;
  bool copy(const Waiting& tensor, const std::function<bool(ByteView)>& write) const;

  std::string path_;
  std::FILE* data_;
  int error_;  // of opening it
  std::set<std::string> names_;
  std::vector<Waiting> waiting_;
  std::uint64_t end_ = 0;
};

}  // namespace epipe::model
