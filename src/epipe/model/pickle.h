#pragma once

#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"

// The subset of Python's pickle opcodes that a state dict uses. Nothing is imported, called or executed: function names are only compared
// with the ones torch.save uses, and any other name is an error.
namespace epipe::model {

struct PickleValue {
  enum class Kind : std::uint8_t { kNone, kNumber, kText, kTuple, kList, kDict, kStorageType, kFunction, kStorage, kTensor };
  Kind kind = Kind::kNone;
  std::int64_t number = 0;            // kNumber (fractions are truncated: no tensor's description has one)
  std::string_view text;              // kText, or the name of a kStorageType or kFunction; a view into the pickle
  std::vector<PickleValue*> items{};  // kTuple, kList; kDict: key, value, key, value
  // kStorage: {"storage", type, key, device, values}; kTensor: {storage, offset, sizes, strides, ...}
};

// A parsed pickle. The values live as long as this and the bytes it was parsed from.
struct Pickle {
  std::deque<PickleValue> values;
  const PickleValue* top = nullptr;
};

// Takes memory and time proportional to the bytes.
Result<Pickle> parse_pickle(ByteView bytes);

}  // namespace epipe::model
