#include "epipe/transport/grpc/relay.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "epipe/base/queue.h"
#include "epipe/transport/grpc/grpc_link.h"

namespace epipe::transport {
namespace {

void forward_pieces(Stream& from, Stream& to) {
  while (true) {
    ::grpc::ByteBuffer piece;
    from.read(piece, kForever);
    to.write(std::move(piece));
  }
}

void forward(Link& from, Link& to) {
  auto* const from_grpc = dynamic_cast<GrpcLink*>(&from);
  auto* const to_grpc = dynamic_cast<GrpcLink*>(&to);
  if (from_grpc != nullptr && to_grpc != nullptr) forward_pieces(from_grpc->stream(), to_grpc->stream());
  while (true) to.send(from.recv(kForever));
}

}  // namespace

void close_because(Link& link, const std::string& reason) {
  if (auto* const grpc_link = dynamic_cast<GrpcLink*>(&link)) return grpc_link->stream().close(reason);
  link.close();
}

struct Relay::State {
  std::unique_ptr<Link> a;
  std::unique_ptr<Link> b;
  std::function<void(const std::string&)> on_end;
  std::atomic<bool> ended = false;
  std::thread there;
  std::thread back;

  void run(Link& from, Link& to) {
    try {
      forward(from, to);
    } catch (const Closed&) {
      end("closed");
    } catch (const std::exception& failure) {
      end(failure.what());
    }
  }
  // What had arrived from one side was handed to the other before this.
  void end(const std::string& reason) {
    if (ended.exchange(true)) return;
    close_because(*a, reason);
    close_because(*b, reason);
    if (on_end) on_end(reason);
  }
};

Relay::Relay(std::unique_ptr<Link> a, std::unique_ptr<Link> b, std::function<void(const std::string&)> on_end)
    : state_(std::make_unique<State>()) {
  state_->a = std::move(a);
  state_->b = std::move(b);
  state_->on_end = std::move(on_end);
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
