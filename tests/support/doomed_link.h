#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "epipe/base/queue.h"
#include "epipe/transport/link.h"

// Links over which something happens to somebody after so many messages.
namespace epipe::testing {

class ClientKilled : public std::exception {};

// What happens when the countdown of messages ends.
enum class Fault { kNone, kCutLink, kKillParticipant, kKillClient };

struct Countdown {
  std::mutex mutex;
  int left = -1;  // messages until the fault; negative: none
  Fault fault = Fault::kNone;
  int happened = 0;
  int messages = 0;  // of everybody, so far

  // All that left the client, when somebody wants to see it.
  std::vector<Bytes>* seen = nullptr;
  void witness(const Bytes& message) {
    const std::lock_guard lock(mutex);
    if (seen != nullptr) seen->push_back(message);
  }

  void start(int after, Fault what) {
    const std::lock_guard lock(mutex);
    left = after;
    fault = what;
  }

  // The fault that this message triggers. Only the client's own messages kill it.
  Fault tick(bool by_client) {
    const std::lock_guard lock(mutex);
    ++messages;
    if (left > 0) --left;
    if (left != 0 || (fault == Fault::kKillClient && !by_client)) return Fault::kNone;
    left = -1;
    ++happened;
    return std::exchange(fault, Fault::kNone);
  }
};

// A link over which the countdown's fault comes. To a lost peer it looks as over a network: ConnectionLost, not Closed.
class DoomedLink final : public transport::Link {
 public:
  using OnFault = std::function<void(Fault)>;
  DoomedLink(std::unique_ptr<transport::Link> link, bool of_client, Countdown& countdown, OnFault on_fault)
      : link_(std::move(link)), of_client_(of_client), countdown_(countdown), on_fault_(std::move(on_fault)) {}

  void send(Bytes message) override {
    meet_fate();
    if (of_client_) countdown_.witness(message);
    try {
      link_->send(std::move(message));
    } catch (const Closed&) {
      throw_why();
    }
  }
  Bytes recv(transport::Timeout timeout) override {
    try {
      return link_->recv(timeout);
    } catch (const Closed&) {
      throw_why();
    }
  }
  void close() override {
    closed_here_ = true;
    link_->close();
  }

 private:
  void meet_fate() {
    const Fault fault = countdown_.tick(of_client_);
    if (fault == Fault::kNone) return;
    link_->close();
    if (fault == Fault::kKillClient) throw ClientKilled();
    if (on_fault_) on_fault_(fault);
    throw transport::ConnectionLost("the link was cut");
  }
  [[noreturn]] void throw_why() const {
    if (closed_here_) throw Closed();
    throw transport::ConnectionLost("the peer is gone");
  }

  std::unique_ptr<transport::Link> link_;
  bool of_client_;
  Countdown& countdown_;
  OnFault on_fault_;
  std::atomic<bool> closed_here_ = false;
};

}  // namespace epipe::testing
