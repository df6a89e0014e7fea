#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "epipe/transport/link.h"

namespace epipe::transport {

// The messages of a link that have arrived and wait for the reader.
class Mailbox {
 public:
  explicit Mailbox(std::size_t capacity) : capacity_(capacity) {}

  // Waits for room; false if the mailbox was closed.
  bool push(Bytes message);
  // Throws Closed, ConnectionLost or TimedOut.
  Bytes pop(Timeout timeout);
  void close();
  // The peer is gone. The first `messages` it sent are still delivered; then pop() throws ConnectionLost. Only the first call counts.
  void lose(const std::string& reason, std::uint64_t messages);

 private:
  bool nothing_left() const { return lost_after_ && pushed_ >= *lost_after_ && messages_.empty(); }

  const std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Bytes> messages_;
  std::uint64_t pushed_ = 0;
  std::optional<std::uint64_t> lost_after_;
  std::string reason_;
  bool closed_ = false;
};

}  // namespace epipe::transport
