#include "epipe/train/peers.h"

#include <fmt/format.h>

#include "epipe/train/reducer.h"

namespace epipe::train {

void Peer::ask(const Message& command) {
  try {
    link_->send(to_bytes(command));
  } catch (const transport::Lost& error) {
    throw transport::Lost(fmt::format("{}: {}", name_, error.what()));
  }
}

Message Peer::answer(const std::string& kind, transport::Patience patience) {
  Bytes bytes;
  try {
    bytes = link_->recv(patience);
  } catch (const transport::Lost& error) {
    throw transport::Lost(fmt::format("{}: {}", name_, error.what()));
  } catch (const transport::TimedOut& error) {
    throw transport::TimedOut(fmt::format("{} does not answer: {}", name_, error.what()));
  }
  auto message = read_message(bytes);
  if (!message) throw PeerFailed(fmt::format("{}: {}", name_, message.error().text()));
  if (message.value().kind == kind) return std::move(message).value();
  if (message.value().kind != "failed") {
    throw PeerFailed(fmt::format("{}: expected the answer {}, got {}", name_, kind, model::in_quotes(message.value().kind)));
  }
  const std::string error = message.value().fields.value("error", "no reason");
  if (message.value().fields.value("replica", false)) throw ReplicaLost(fmt::format("{}: {}", name_, error));
  if (message.value().fields.value("again", false)) throw transport::Lost(fmt::format("{}: {}", name_, error));
  throw PeerFailed(fmt::format("{}: {}", name_, error));
}

}  // namespace epipe::train
