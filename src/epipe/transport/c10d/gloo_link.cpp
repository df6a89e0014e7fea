#include "epipe/transport/c10d/gloo_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "epipe/base/queue.h"

namespace epipe::transport {
namespace {

constexpr std::size_t kGlooCapacity = 1;  // messages held for a slow reader, besides the one being received
constexpr std::size_t kFirstBytes = 65536;
constexpr std::size_t kGlooHeaderBytes = sizeof(std::uint64_t);
constexpr std::size_t kShortBytes = kFirstBytes - kGlooHeaderBytes;

// The length, and the message if it is short.
Bytes first_transfer(const Bytes& message) {
  Bytes first;
  append(first, static_cast<std::uint64_t>(message.size()));
  if (message.size() <= kShortBytes) append_bytes(first, message);
  return first;
}

}  // namespace

std::string closed_reason(int rank) { return fmt::format("rank {} closed the link", rank); }

GlooLink::GlooLink(GlooPeer& peer, std::uint32_t channel, std::uint64_t max_message_bytes)
    : peer_(peer), channel_(channel), max_message_bytes_(max_message_bytes), arrived_(kGlooCapacity) {
  peer_.enter(channel_, *this);
  thread_ = std::thread([this] { receive(); });
}

GlooLink::~GlooLink() {
  close();
  thread_.join();
  peer_.leave(channel_);
}

void GlooLink::close() {
  ClosingNotice notice;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) return;
    if (sending_) sending_->abort();
    if (receiving_) receiving_->abort();
    notice = own_;
  }
  arrived_.close();
  peer_.tell_closed(channel_, notice);
}

void GlooLink::lose(const std::string& reason, const ClosingNotice& notice) {
  {
    const std::lock_guard lock(mutex_);
    if (lost_.empty()) lost_ = reason;
    arrived_at_peer_ = std::max(arrived_at_peer_, notice.received);
    if (sending_) sending_->abort();
  }
  arrived_.lose(reason, notice.sent);
}

void GlooLink::send(Bytes message) {
  if (message.size() > max_message_bytes_) {
    throw std::runtime_error(fmt::format("a message of {} bytes is above the limit of {}", message.size(), max_message_bytes_));
  }
  const bool is_long = message.size() > kShortBytes;
  try {
    transfer_out(first_transfer(message));
    if (is_long) transfer_out(std::move(message));
  } catch (const ConnectionLost&) {
    if (!arrived_there()) throw;
  }
  const std::lock_guard lock(mutex_);
  ++own_.sent;
}

// Whether the message being sent arrived at a reader that closed before gloo told us.
bool GlooLink::arrived_there() {
  const std::lock_guard lock(mutex_);
  return arrived_at_peer_ > own_.sent;
}

void GlooLink::transfer_out(Bytes memory) {
  check_open();
  try {
    Transfer transfer{peer_.start_send(memory, channel_), std::move(memory)};
    if (run(transfer, sending_)) return;
  } catch (const std::exception& failure) {
    lose(gone_reason(peer_.known_as(), failure.what()), {});
  }
  check_open();
}

void GlooLink::check_open() {
  const std::lock_guard lock(mutex_);
  if (closed_) throw Closed();
  if (!lost_.empty()) throw ConnectionLost(lost_);
}

// Waits until the transfer is done; false if close() or lose() ended it, which find it in `slot`.
bool GlooLink::run(Transfer& transfer, Work& slot) {
  {
    const std::lock_guard lock(mutex_);
    slot = transfer.work;
    const bool is_send = &slot == &sending_;
    if (closed_ || (is_send && !lost_.empty())) transfer.work->abort();
  }
  bool done = false;
  std::exception_ptr failure;
  try {
    done = GlooPeer::wait(*transfer.work);
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    slot.reset();
  }
  if (!done) peer_.retire(std::move(transfer));
  if (failure) std::rethrow_exception(failure);
  return done;
}

// The link's thread.
void GlooLink::receive() {
  try {
    while (receive_one()) {
    }
  } catch (const std::exception& failure) {
    lose(gone_reason(peer_.known_as(), failure.what()), {});
  }
}

bool GlooLink::receive_one() {
  Bytes first(kFirstBytes);  // zeros: what arrives may be shorter
  if (!transfer_in(first, first)) return false;
  const auto length = load<std::uint64_t>(first, 0);
  if (length > max_message_bytes_) {
    lose(fmt::format("rank {} announced a message of {} bytes; the limit is {}", peer_.known_as(), length, max_message_bytes_), {});
    return false;
  }
  Bytes message;
  if (length > kShortBytes) {
    Unwritten room(message, length);
    if (!transfer_in(message, room.span())) return false;
    room.written();
  } else {
    append_bytes(message, ByteView(first).subspan(kGlooHeaderBytes, length));
  }
  {
    const std::lock_guard lock(mutex_);
    ++own_.received;
  }
  return arrived_.push(std::move(message));
}

bool GlooLink::transfer_in(Bytes& memory, MutableBytes room) {
  Transfer transfer{peer_.start_recv(room, channel_), std::move(memory)};
  if (!run(transfer, receiving_)) return false;
  memory = std::move(transfer.memory);
  return true;
}

}  // namespace epipe::transport
