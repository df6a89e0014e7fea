#pragma once

#include <cstdint>
#include <cstring>

#include "epipe/base/bytes.h"

namespace epipe::kernels {

// Appends fields of 1 to 56 bits, LSB first, to bytes that are large enough; may write to all of them. The last byte is filled up with
// zeros.
class BitWriter {
 public:
  explicit BitWriter(MutableBytes out) : out_(out) {}

  void put(std::uint64_t value, unsigned bits) {
    pending_ |= value << filled_;
    filled_ += bits;
    const unsigned whole = filled_ / 8;  // at most 7 bytes
    std::memcpy(out_.data() + at_, &pending_, out_.size() - at_ >= sizeof pending_ ? sizeof pending_ : whole);
    at_ += whole;
    pending_ >>= 8 * whole;
    filled_ %= 8;
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
    if (filled_ < bits) refill(bits);
    const std::uint64_t value = pending_ & ((std::uint64_t{1} << bits) - 1);
    pending_ >>= bits;
    filled_ -= bits;
    return value;
  }
  std::size_t available() const { return 8 * (in_.size() - at_) + filled_; }  // bits
  std::size_t bytes() const { return at_ - filled_ / 8; }                     // taken so far, the last one perhaps in part

 private:
  // Eight bytes at once where they are there; what does not fit above the bits that are left is read again.
  void refill(unsigned bits) {
    if (in_.size() - at_ >= sizeof pending_) {
      std::uint64_t word;
      std::memcpy(&word, in_.data() + at_, sizeof word);
      pending_ |= word << filled_;
      const unsigned whole = (63 - filled_) / 8;
      at_ += whole;
      filled_ += 8 * whole;
      return;
    }
    for (; filled_ < bits; filled_ += 8) pending_ |= static_cast<std::uint64_t>(in_[at_++]) << filled_;
  }

  ByteView in_;
  std::size_t at_ = 0;
  std::uint64_t pending_ = 0;
  unsigned filled_ = 0;
};

}  // namespace epipe::kernels
