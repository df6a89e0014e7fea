#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"
#include "epipe/model/named_tensors.h"

namespace epipe::train {

// A command of the client to another process of its run, or the answer.
//
//   4 bytes  N, little-endian
//   N bytes  JSON object with at least "kind"
//   rest     safetensors, or nothing
struct Message {
  std::string kind;
  nlohmann::json fields = nlohmann::json::object();
  model::NamedTensors tensors{};
};

Bytes to_bytes(const Message& message);
// Trusts nothing; allocates in proportion to `bytes`.
Result<Message> read_message(ByteView bytes);

}  // namespace epipe::train
