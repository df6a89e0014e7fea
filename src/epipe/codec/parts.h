#pragma once

#include <memory>
#include <string>
#include <vector>

#include "epipe/codec/factories.h"

namespace epipe::codec {

// The states of several codecs as one: names of the second begin with "1/".
template <typename Inner>
State joined_state(const std::vector<std::unique_ptr<Inner>>& parts) {
  State all;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (auto& [name, tensor] : parts[i]->state()) all.emplace(std::to_string(i) + "/" + name, tensor);
  }
  return all;
}

template <typename Inner>
void set_joined_state(const std::vector<std::unique_ptr<Inner>>& parts, const State& state) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string prefix = std::to_string(i) + "/";
    State own;
    for (const auto& [name, tensor] : state) {
      if (name.starts_with(prefix)) own.emplace(name.substr(prefix.size()), tensor);
    }
    parts[i]->set_state(own);
  }
}

// The tensors a transform turns its input into, each coded by an inner codec of its own:
//   u64 bytes | payload of part 0 | u64 bytes | payload of part 1 | ...
class Parts {
 public:
  Parts(std::size_t count, const InnerFactory& inner);

  PayloadBounds payload_bounds(const std::vector<TensorSpec>& shapes) const;
  // On an error `out` may hold some parts already; the caller cuts it back.
  Result<void> encode(const std::vector<torch::Tensor>& parts, const EncodeContext& at, Bytes& out);
  Result<std::vector<torch::Tensor>> decode(const std::vector<TensorSpec>& shapes, ByteView in) const;

  Codec& first() const { return *inner_.front(); }  // takes tensors that the transform leaves alone
  const Codec& codec(std::size_t part) const { return *inner_[part]; }
  std::vector<std::unique_ptr<DeviceCodec>> device_codecs() const;  // of all parts
  std::string suffix() const;                                       // ">uniform:8", or nothing for none
  State state() const { return joined_state(inner_); }
  void set_state(const State& state) { set_joined_state(inner_, state); }

 private:
  std::vector<std::unique_ptr<Codec>> inner_;
};

}  // namespace epipe::codec
