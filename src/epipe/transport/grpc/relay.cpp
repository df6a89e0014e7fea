#include "epipe/transport/relay.h"

#include <atomic>
#include <exception>
#include <thread>
#include <utility>

#include "epipe/transport/grpc/grpc_link.h"

namespace epipe::transport {
namespace {

// Forwards one piece if both links are gRPC's, otherwise one message.
class Forwarder {
 public:
  Forwarder(Link& from, Link& to)
      : from_(from), to_(to), from_grpc_(dynamic_cast<GrpcLink*>(&from)), to_grpc_(dynamic_cast<GrpcLink*>(&to)) {}

  void take() {
    if (pieces()) {
      from_grpc_->stream().read(piece_, kNoTimeout);
    } else {
      message_ = from_.recv(kNoTimeout);
    }
  }
  std::size_t bytes() const { return pieces() ? piece_.Length() : message_.size(); }
  void give() {
    if (pieces()) {
      to_grpc_->stream().write(std::exchange(piece_, {}));
    } else {
      to_.send(std::move(message_));
    }
  }

 private:
  bool pieces() const { return from_grpc_ != nullptr && to_grpc_ != nullptr; }

  Link& from_;
  Link& to_;
  GrpcLink* const from_grpc_;
  GrpcLink* const to_grpc_;
  ::grpc::ByteBuffer piece_;
  Bytes message_;
};

// Forwards until `from` ends; returns the reason.
std::string forward(Link& from, Link& to, const std::function<void(std::size_t bytes)>& on_piece) {
  Forwarder forwarder(from, to);
  while (true) {
    try {
      forwarder.take();
    } catch (const std::exception& ended) {
      return ended.what();
    }
    on_piece(forwarder.bytes());
    forwarder.give();
  }
}

}  // namespace

void close_because(Link& link, const std::string& reason) {
  if (auto* const grpc_link = dynamic_cast<GrpcLink*>(&link)) return grpc_link->stream().close(reason);
  link.close();
}

struct Relay::State {
  std::unique_ptr<Link> a;
  std::unique_ptr<Link> b;
  Observer observer;
  std::atomic<bool> ended = false;
  std::thread there;
  std::thread back;

  // A side that takes nothing any more has ended, too; but it may have sent a last message, which the other thread reads first.
  void run(Link& from, Link& to) {
    const auto on_piece = [this, from_a = &from == a.get()](std::size_t bytes) {
      if (observer.on_piece) observer.on_piece(from_a, bytes);
    };
    try {
      end(forward(from, to, on_piece));
    } catch (const std::exception&) {
    }
  }
  void end(const std::string& reason) {
    if (ended.exchange(true)) return;
    close_because(*a, reason);
    close_because(*b, reason);
    if (observer.on_end) observer.on_end(reason);
  }
};

Relay::Relay(std::unique_ptr<Link> a, std::unique_ptr<Link> b, Observer observer) : state_(std::make_unique<State>()) {
  state_->a = std::move(a);
  state_->b = std::move(b);
  state_->observer = std::move(observer);
  state_->there = std::thread([state = state_.get()] { state->run(*state->a, *state->b); });
  state_->back = std::thread([state = state_.get()] { state->run(*state->b, *state->a); });
}

Relay::~Relay() {
  close("the relay was closed");
  state_->there.join();
  state_->back.join();
}

void Relay::close(const std::string& reason) { state_->end(reason); }

bool Relay::ended() const { return state_->ended; }

}  // namespace epipe::transport
