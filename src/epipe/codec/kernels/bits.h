#pragma once

#include <cstdint>

#include "epipe/base/bytes.h"

namespace epipe::kernels {

// Appends fields of 1 to 56 bits, LSB first, to bytes that are large enough. The last byte is filled up with zeros.
class BitWriter {
 public:
  explicit BitWriter(MutableBytes out) : out_(out) {}

  void put(std::uint64_t value, unsigned bits) {
    pending_ |= value << filled_;
    for (filled_ += bits; filled_ >= 8; filled_ -= 8, pending_ >>= 8) out_[at_++] = static_cast<std::byte>(pending_);
  }
  void finish() {
    if (filled_ > 0) out_[at_++] = static_cast<std::byte>(pending_);
    filled_ = 0;
  }
  std::size_t bytes() const { return at_; }  // written so far, after finish() all of them

 private:
  MutableBytes out_;
  std::size_t at_ = 0;
  std::uint64_t pending_ = 0;
  unsigned filled_ = 0;
};

// Takes fields of 1 to 56 bits off bytes that hold them all.
class BitReader {
 public:
  explicit BitReader(ByteView in) : in_(in) {}

  std::uint64_t take(unsigned bits) {
    for (; filled_ < bits; filled_ += 8) pending_ |= static_cast<std::uint64_t>(in_[at_++]) << filled_;
    const std::uint64_t value = pending_ & ((std::uint64_t{1} << bits) - 1);
    pending_ >>= bits;
    filled_ -= bits;
    return value;
  }
  std::size_t available() const { return 8 * (in_.size() - at_) + filled_; }  // bits
  std::size_t bytes() const { return at_; }                                   // taken so far, the last one perhaps in part

 private:
  ByteView in_;
  std::size_t at_ = 0;
  std::uint64_t pending_ = 0;
  unsigned filled_ = 0;
};

}  // namespace epipe::kernels
