#pragma once

#include <memory>
#include <string>
#include <vector>

#include "epipe/codec/factories.h"

namespace epipe::codec {

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
  std::string suffix() const;                       // ">uniform:8", or nothing for none
  State state() const;
  void set_state(const State& state);

 private:
  std::vector<std::unique_ptr<Codec>> inner_;
};

}  // namespace epipe::codec
