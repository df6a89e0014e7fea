#pragma once

#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"

// The few words of Python's pickle language that a state dict is written in. Nothing is imported, called or executed: the names of
// functions are only compared with those torch.save uses, and any other name is an error.
namespace epipe::model {

struct PickleValue {
  enum class Kind : std::uint8_t { kNone, kNumber, kText, kTuple, kList, kDict, kStorageType, kFunction, kStorage, kTensor };
  Kind kind = Kind::kNone;
  std::int64_t number = 0;            // kNumber (a fraction is cut off: no tensor is described by one)
  std::string_view text;              // kText, the name of a kStorageType or kFunction; bytes of the pickle
  std::vector<PickleValue*> items{};  // kTuple, kList; kDict: key, value, key, value
  // kStorage: {"storage", type, key, device, values}; kTensor: {storage, offset, sizes, strides, ...}
};

// A pickle that was read. The values live as long as this and the bytes it was read from.
struct Pickle {
  std::deque<PickleValue> values;
  const PickleValue* top = nullptr;
};

// Memory and time in proportion to the bytes.
Result<Pickle> parse_pickle(ByteView bytes);

}  // namespace epipe::model
