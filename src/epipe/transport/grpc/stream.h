#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/support/byte_buffer.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "epipe/transport/link.h"

namespace epipe::transport {

// One gRPC stream as two bounded queues of pieces, on either side. Our threads wait here; gRPC's threads call the protected functions and
// never wait. No gRPC operation is started with the mutex held, because it may call back at once.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  virtual ~Stream() = default;

  // Waits for room. Throws Closed or ConnectionLost; the latter also when the peer took nothing for the send timeout.
  void write(::grpc::ByteBuffer piece);
  // The next piece; false if none came in time. Throws Closed or ConnectionLost, after all pieces that arrived before the peer left.
  bool read(::grpc::ByteBuffer& piece, Timeout timeout);
  // Ends all waits here. Queued pieces are still written for a short while, then the peer learns that the stream was closed, and why.
  void close(const std::string& reason);
  // Treats the peer as gone: for a stream with invalid bytes.
  void cancel_because(const std::string& reason);
  // Waits until gRPC is done with the stream, which is soon after close().
  void wait_over();

  // The peer is gone.
  bool lost();

  const std::string& peer() const { return peer_; }

 protected:
  Stream(std::string peer, Timeout send_timeout) : peer_(std::move(peer)), send_timeout_(send_timeout) {}

  // Requests to gRPC; each has at most one call outstanding, which is answered by the functions below.
  virtual void start_read(::grpc::ByteBuffer* piece) = 0;
  virtual void start_write(const ::grpc::ByteBuffer* piece) = 0;
  virtual void finish(const std::string& reason) = 0;  // nothing more will be written
  virtual void release() = 0;                          // nothing more will be requested
  virtual void cancel() = 0;                           // everything under way fails soon

  void begin();                          // the stream is open: pieces may flow
  void on_read(bool ok);                 // after start_read
  void on_write(bool ok);                // after start_write
  void on_ended();                       // the peer left, or the connection broke
  void on_over();                        // gRPC is done; after on_lost, except for a stream that was closed here
  void on_lost(const std::string& why);  // the first reason is kept

  std::mutex mutex_;
  std::condition_variable changed_;  // one reader, one writer and the closing threads wait for it
  bool lost_ = false;                // the peer is gone; reason_ says why
  std::string reason_;

 private:
  struct Step {
    bool read = false;
    bool write = false;
    bool finish = false;
    bool release = false;
  };
  Step next_step();    // with the mutex held
  bool can_release();  // with the mutex held
  void advance(std::unique_lock<std::mutex>& lock);
  void linger();
  void cancel_if_stuck();

  const std::string peer_;
  const Timeout send_timeout_;
  std::deque<::grpc::ByteBuffer> incoming_;
  std::deque<::grpc::ByteBuffer> outgoing_;
  ::grpc::ByteBuffer landing_;  // being read
  ::grpc::ByteBuffer leaving_;  // being written
  std::string close_reason_;
  bool begun_ = false;
  bool reading_ = false;
  bool writing_ = false;
  bool ended_ = false;     // nothing more will arrive
  bool closed_ = false;    // by our side
  bool finished_ = false;  // finish() was called
  int asking_ = 0;         // threads between next_step() and the calls it decided on
  bool released_ = false;
  bool over_ = false;
  int written_ = 0;                       // pieces written since the alarm was set
  std::unique_ptr<::grpc::Alarm> alarm_;  // ends a closed stream whose peer takes nothing
};

}  // namespace epipe::transport
