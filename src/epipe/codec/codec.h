#pragma once

#include <torch/types.h>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"
#include "epipe/base/thread_pool.h"
#include "epipe/codec/kernels/kernels.h"
#include "epipe/wire/tensor_spec.h"

namespace epipe::codec {

using wire::TensorSpec;

// The shortest and longest payload a codec may write for a shape; checked before anything is allocated.
struct PayloadBounds {
  std::size_t min = 0;
  std::size_t max = 0;
};

struct EncodeContext {
  bool frozen = false;  // leave the encoder's state alone (validation)
  double rate = 0;      // bits per value of an entropy codec, instead of its spec's; 0: the spec's. `auto` without a number needs one
};

// What an encoder remembers from call to call, by name; empty for most. Part of a checkpoint.
using State = std::map<std::string, torch::Tensor>;

class DeviceCodec;

// Turns one float32 tensor into bytes and back. Decoding trusts nothing and never gives NaN or Inf.
// A tensor without values has an empty payload in every codec.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual std::string spec() const = 0;  // "sort:6+2"; make_codec(spec()) gives an equal codec
  virtual PayloadBounds payload_bounds(const TensorSpec& tensor) const = 0;
  // Appends the payload of x, a float32 CPU tensor of any strides. On an error `out` and the state are as before.
  virtual Result<void> encode(const torch::Tensor& x, const EncodeContext& at, Bytes& out) = 0;
  // Fills x, a contiguous float32 CPU tensor whose shape was agreed on; on an error its values mean nothing.
  virtual Result<void> decode_into(torch::Tensor& x, ByteView in) const = 0;
  virtual State state() const = 0;
  virtual void set_state(const State& state) = 0;
  // The same codec for tensors on a CUDA device (cuda/device_codec.h), which must not outlive this one; null where there is none.
  virtual std::unique_ptr<DeviceCodec> device_codec() const;
};

// What every codec of a worker shares. The pool outlives the codecs; null means one thread.
struct CodecOptions {
  ThreadPool* pool = nullptr;
  const kernels::Kernels* kernels = &kernels::best();
  torch::Device device = torch::kCPU;  // where frames are decoded to
};

// Parses a chain such as "topk:0.1>uniform:8". In a build with CUDA what it gives takes tensors on any device. The error shows the text
// with a mark under the wrong character.
Result<std::unique_ptr<Codec>> make_codec(std::string_view spec, const CodecOptions& options = {});
// The bits per value that an entropy codec aims at, 0 for `auto` without a number, nothing for all others: whose rate a caller may set.
std::optional<double> target_rate(std::string_view spec);
// What a chain is made of, separated by spaces: "none fp16 bf16 uniform:B ...".
std::string_view known_codecs();

TensorSpec spec_of(const torch::Tensor& x);

}  // namespace epipe::codec
