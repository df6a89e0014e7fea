#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "epipe/session/messages.h"
#include "epipe/transport/link.h"

namespace epipe::session {

// Another process refused or failed for a reason that reconnecting would not change.
class PeerFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One participant, as the coordinator sees it.
class Peer {
 public:
  enum class Role : std::uint8_t { kWorker, kLeader };  // kLeader: of another replica
  Peer(int worker, Role role, std::string name, std::unique_ptr<transport::Link> link, transport::Timeout timeout)
      : worker_(worker), role_(role), name_(std::move(name)), link_(std::move(link)), timeout_(timeout) {}

  int worker() const { return worker_; }
  bool leads() const { return role_ == Role::kLeader; }
  const std::string& name() const { return name_; }
  void send(const Command& command);
  // The reply to the oldest unanswered command, which must be of this type. Throws ConnectionLost or TimedOut, also if the peer says that
  // reconnecting may help, and PeerFailed otherwise; all name the peer.
  template <typename Expected>
  Expected recv() {
    return recv<Expected>(timeout_);
  }
  template <typename Expected>
  Expected recv(transport::Timeout timeout) {
    Reply reply = recv_reply(timeout);
    if (auto* const expected = std::get_if<Expected>(&reply)) return std::move(*expected);
    refuse(reply, Expected::kName);
  }
  void close() { link_->close(); }

 private:
  Reply recv_reply(transport::Timeout timeout);
  [[noreturn]] void refuse(const Reply& reply, std::string_view expected) const;

  int worker_;
  Role role_;
  std::string name_;
  std::unique_ptr<transport::Link> link_;
  transport::Timeout timeout_;
};

}  // namespace epipe::session
