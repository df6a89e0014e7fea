#include "epipe/transport/grpc/grpc_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace epipe::transport {
namespace {

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
constexpr std::size_t kFirstRoom = std::size_t{1} << 26;  // for a longer message, memory grows as it arrives
using Owner = std::shared_ptr<Bytes>;                     // one message, owned by all of its slices that gRPC still has

// A part of the message, not copied.
::grpc::Slice slice_of(const Owner& message, std::size_t offset, std::size_t bytes) {
  const auto forget = [](void* owner) { delete static_cast<Owner*>(owner); };
  return {message->data() + offset, bytes, forget, new Owner(message)};
}

::grpc::ByteBuffer first_piece(const Owner& message, std::size_t bytes) {
  const std::uint64_t length = message->size();
  const std::array<::grpc::Slice, 2> slices{::grpc::Slice(&length, kLengthBytes), slice_of(message, 0, bytes)};
  return {slices.data(), bytes == 0 ? 1U : 2U};
}

::grpc::ByteBuffer next_piece(const Owner& message, std::size_t offset, std::size_t bytes) {
  const ::grpc::Slice slice = slice_of(message, offset, bytes);
  return {&slice, 1};
}

// Appends the bytes of a piece from `from` to `to`.
void copy(const std::vector<::grpc::Slice>& slices, std::size_t from, std::size_t to, Bytes& out) {
  std::size_t begin = 0;  // of the slice, in the piece
  for (const auto& slice : slices) {
    const std::size_t first = std::clamp(from, begin, begin + slice.size()) - begin;
    const std::size_t last = std::clamp(to, begin, begin + slice.size()) - begin;
    append_bytes(out, std::as_bytes(std::span(slice.begin() + first, last - first)));
    begin += slice.size();
  }
}

std::uint64_t length_of(const std::vector<::grpc::Slice>& slices) {
  Bytes header;
  copy(slices, 0, kLengthBytes, header);
  return load<std::uint64_t>(header, 0);
}

}  // namespace

GrpcLink::GrpcLink(std::shared_ptr<Stream> stream, std::uint64_t max_message_bytes, std::shared_ptr<const void> owner)
    : owner_(std::move(owner)), stream_(std::move(stream)), max_message_bytes_(max_message_bytes) {}

GrpcLink::~GrpcLink() {
  stream_->close({});
  stream_->wait_over();
}

void GrpcLink::send(Bytes message) {
  if (message.size() > max_message_bytes_) {
    throw std::runtime_error(fmt::format("a message of {} bytes is above the limit of {}", message.size(), max_message_bytes_));
  }
  const auto owner = std::make_shared<Bytes>(std::move(message));
  std::size_t offset = std::min(owner->size(), kPieceBytes - kLengthBytes);
  stream_->write(first_piece(owner, offset));
  while (offset < owner->size()) {
    const std::size_t bytes = std::min(owner->size() - offset, kPieceBytes);
    stream_->write(next_piece(owner, offset, bytes));
    offset += bytes;
  }
}

Bytes GrpcLink::recv(Timeout timeout) {
  do {
    ::grpc::ByteBuffer piece;
    if (!stream_->read(piece, timeout)) throw TimedOut(fmt::format("{}: nothing arrived within {} ms", stream_->peer(), timeout.count()));
    take(piece);
  } while (message_.size() < length_);
  started_ = false;
  return std::exchange(message_, {});
}

// The length is checked before anything is allocated; after that, the size of every piece is known.
void GrpcLink::take(const ::grpc::ByteBuffer& piece) {
  std::vector<::grpc::Slice> slices;
  if (!piece.Dump(&slices).ok()) give_up("a piece that cannot be read");
  std::size_t header = 0;
  if (!started_) {
    header = kLengthBytes;
    if (piece.Length() < header) give_up(fmt::format("expected a length of {} bytes, got {}", header, piece.Length()));
    start(length_of(slices));
  }
  const std::size_t bytes = std::min(length_ - message_.size(), kPieceBytes - header);
  if (piece.Length() != header + bytes) give_up(fmt::format("expected a piece of {} bytes, got {}", header + bytes, piece.Length()));
  if (message_.capacity() < message_.size() + bytes) message_.reserve(std::min(length_, std::max(kFirstRoom, 2 * message_.size())));
  copy(slices, header, header + bytes, message_);
}

void GrpcLink::start(std::uint64_t length) {
  if (length > max_message_bytes_) give_up(fmt::format("a message of {} bytes is above the limit of {}", length, max_message_bytes_));
  length_ = static_cast<std::size_t>(length);
  message_.clear();
  started_ = true;
}

void GrpcLink::give_up(const std::string& why) {
  stream_->cancel_because(why);
  throw ConnectionLost(fmt::format("{}: {}", stream_->peer(), why));
}

}  // namespace epipe::transport
