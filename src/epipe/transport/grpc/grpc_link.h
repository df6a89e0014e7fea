#pragma once

#include <memory>

#include "epipe/transport/grpc/stream.h"
#include "epipe/transport/link.h"

namespace epipe::transport {

// Messages over a stream, in pieces of at most 1 MiB:
//
//   first piece    u64 length of the message | its first bytes
//   other pieces   the next bytes, until the length is reached
//
// All pieces but the last are full.
class GrpcLink final : public Link {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

  // `owner` must outlive the stream.
  GrpcLink(std::shared_ptr<Stream> stream, std::uint64_t max_message_bytes, std::shared_ptr<const void> owner = nullptr);
  ~GrpcLink() override;  // closes and waits for gRPC; must not run on a gRPC thread

  void send(Bytes message) override;
  // Once a message has started to arrive, `timeout` applies to each of its pieces.
  Bytes recv(Timeout timeout) override;
  void close() override { stream_->close({}); }

  Stream& stream() { return *stream_; }

 private:
  void take(const ::grpc::ByteBuffer& piece);
  void start(std::uint64_t length);
  [[noreturn]] void give_up(const std::string& why);

  std::shared_ptr<const void> owner_;  // shared with the other links of a connection
  std::shared_ptr<Stream> stream_;     // shared with gRPC, whose threads call it until the stream ends
  const std::uint64_t max_message_bytes_;
  bool started_ = false;    // the first piece of message_ has arrived
  std::size_t length_ = 0;  // of the whole message
  Bytes message_;           // the part that has arrived
};

}  // namespace epipe::transport
