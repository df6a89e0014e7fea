#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "epipe/base/bytes.h"

// The protocol between the ranks and rank 0's store. Both ways:
//
//   4 bytes  N, little-endian
//   N bytes  a request or its answer
//
//   request  1 byte operation, 4 bytes length of the key, key, rest: the argument
//   answer   1 byte: whether the key exists, rest: its value, or the requested number
namespace epipe::transport {

enum class StoreOperation : std::uint8_t {
  kSet,
  kGet,
  kAdd,         // adds the argument to the value, both decimal text
  kCompareSet,  // 4 bytes length of the expected value, expected value, new value
  kDelete,
  kCount,  // of all keys
};

inline constexpr std::uint32_t kMaxStoreBytes = 1 << 20;    // per request or answer
inline constexpr std::size_t kMaxStoreMemory = 256U << 20;  // per store; gloo needs about 70 bytes for each pair of ranks

inline void append_text(Bytes& out, std::string_view text) { append_bytes(out, std::as_bytes(std::span(text))); }
inline void append_sized_text(Bytes& out, std::string_view text) {
  append(out, static_cast<std::uint32_t>(text.size()));
  append_text(out, text);
}
inline std::string to_text(ByteView bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace epipe::transport
