#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

#include "epipe/transport/c10d/gloo_peer.h"
#include "epipe/transport/c10d/mailbox.h"
#include "epipe/transport/link.h"

namespace epipe::transport {

std::string closed_reason(int rank);  // "rank 2 closed the link"

// Messages over gloo's send and recv. The first transfer of a message holds its length and, if it is short, the message itself:
//
//   u64 length | up to 65528 bytes       then, for longer messages, all bytes in a second transfer
//
// A thread of the link receives ahead of the reader, so that a sender does not wait for recv() calls.
class GlooLink final : public Link {
 public:
  GlooLink(GlooPeer& peer, std::uint32_t channel, std::uint64_t max_message_bytes);
  ~GlooLink() override;

  void send(Bytes message) override;
  Bytes recv(Timeout timeout) override { return arrived_.pop(timeout); }
  void close() override;

  // Called by the GlooPeer's thread: the other side is gone, or closed its end after the messages counted in the notice.
  void lose(const std::string& reason, const ClosingNotice& notice);

 private:
  using Work = c10::intrusive_ptr<c10d::Work>;
  void receive();
  bool receive_one();
  // Receives into `room`, a part of `memory`, which stays alive if the transfer is abandoned.
  bool transfer_in(Bytes& memory, MutableBytes room);
  void transfer_out(Bytes memory);
  bool run(Transfer& transfer, Work& slot);
  void check_open();
  bool arrived_there();

  GlooPeer& peer_;
  const std::uint32_t channel_;
  const std::uint64_t max_message_bytes_;
  Mailbox arrived_;
  std::mutex mutex_;
  Work sending_;  // under way; mutex_ guards this and the members below
  Work receiving_;
  bool closed_ = false;
  std::string lost_;
  ClosingNotice own_;                  // this side's, when it closes
  std::uint64_t arrived_at_peer_ = 0;  // messages; known once the peer has closed
  std::thread thread_;
};

}  // namespace epipe::transport
