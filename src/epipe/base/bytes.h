#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

namespace epipe {

static_assert(std::endian::native == std::endian::little, "frames are little-endian and copied as they are");

// Leaves new elements uninitialised: growing a buffer that is about to be overwritten costs nothing.
template <typename T>
struct UninitializedAllocator : std::allocator<T> {
  template <typename U>
  struct rebind {
    using other = UninitializedAllocator<U>;
  };
  template <typename U>
  void construct(U* p) noexcept(std::is_nothrow_default_constructible_v<U>) {
    ::new (static_cast<void*>(p)) U;
  }
  template <typename U, typename... Args>
  void construct(U* p, Args&&... args) {
    ::new (static_cast<void*>(p)) U(std::forward<Args>(args)...);
  }
};

// Working memory that is never sent, whatever it contains.
using Scratch = std::vector<std::byte, UninitializedAllocator<std::byte>>;

// Bytes that may leave the process: each was written, by its owner or as a zero. Use Unwritten for memory that is about to be filled.
class Bytes : public Scratch {
 public:
  Bytes() = default;
  explicit Bytes(std::size_t count) : Scratch(count, std::byte{0}) {}
  Bytes(std::size_t count, std::byte value) : Scratch(count, value) {}
  template <std::input_iterator It>
  Bytes(It begin, It end) : Scratch(begin, end) {}
  Bytes(std::initializer_list<std::byte> bytes) : Scratch(bytes) {}

  void resize(std::size_t count, std::byte value = std::byte{0}) { Scratch::resize(count, value); }
};
using ByteView = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

// Space after the bytes of `out` for a codec, a file or a peer to write to. It becomes part of `out` only when written() is called, so
// unwritten memory cannot be sent, whatever fails in between. `out` must not grow in the meantime.
class Unwritten {
 public:
  Unwritten(Bytes& out, std::size_t count) : out_(out) {
    const std::size_t needed = out.size() + count;
    if (needed > out.capacity()) out.reserve(std::max(needed, out.capacity() + out.capacity() / 2));
    span_ = {out.data() + out.size(), count};
  }
  Unwritten(const Unwritten&) = delete;
  Unwritten& operator=(const Unwritten&) = delete;

  MutableBytes span() const { return span_; }
  // Appends the first `count` bytes to `out`. Call once.
  void written(std::size_t count) { static_cast<Scratch&>(out_).resize(out_.size() + std::min(count, span_.size())); }
  void written() { written(span_.size()); }

 private:
  Bytes& out_;
  MutableBytes span_;
};

// Appends `count` zeros and returns them. Invalidates earlier spans into `out`.
inline MutableBytes grow(Bytes& out, std::size_t count) {
  const std::size_t old = out.size();
  out.resize(old + count);
  return {out.data() + old, count};
}

inline void append_bytes(Bytes& out, ByteView bytes) {
  if (bytes.empty()) return;
  Unwritten room(out, bytes.size());
  std::memcpy(room.span().data(), bytes.data(), bytes.size());
  room.written();
}

template <typename T>
void append(Bytes& out, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  append_bytes(out, std::as_bytes(std::span(&value, 1)));
}

template <typename T>
void store(MutableBytes out, std::size_t offset, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(out.subspan(offset, sizeof(T)).data(), &value, sizeof(T));
}

template <typename T>
T load(ByteView in, std::size_t offset) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, in.subspan(offset, sizeof(T)).data(), sizeof(T));
  return value;
}

inline bool all_zeros(ByteView bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// Reads values from the front of untrusted bytes; nullopt when they run out.
class ByteReader {
 public:
  explicit ByteReader(ByteView in) : rest_(in) {}

  template <typename T>
  std::optional<T> take() {
    const auto bytes = take_bytes(sizeof(T));
    if (!bytes) return std::nullopt;
    return load<T>(*bytes, 0);
  }
  std::optional<ByteView> take_bytes(std::uint64_t count) {
    if (count > rest_.size()) return std::nullopt;
    const ByteView head = rest_.first(static_cast<std::size_t>(count));
    rest_ = rest_.subspan(head.size());
    return head;
  }
  ByteView rest() const { return rest_; }

 private:
  ByteView rest_;
};

// a * b or a + b; nullopt on 64-bit overflow.
inline std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}
inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

}  // namespace epipe
