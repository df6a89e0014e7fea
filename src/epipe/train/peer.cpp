#include "epipe/train/peer.h"

#include <fmt/format.h>

#include "epipe/base/printable.h"
#include "epipe/train/reducer.h"

namespace epipe::train {
namespace {

std::string reason_of(const Message& failed) {
  const auto found = failed.fields.find("error");
  return found != failed.fields.end() && found->is_string() ? printable(found->get<std::string>()) : "no reason";
}

bool is_set(const Message& message, const char* field) {
  const auto found = message.fields.find(field);
  return found != message.fields.end() && *found == true;
}

}  // namespace

void Peer::ask(const Message& command) {
  try {
    link_->send(to_bytes(command));
  } catch (const transport::ConnectionLost& error) {
    throw transport::ConnectionLost(fmt::format("{}: {}", name_, error.what()));
  }
}

Message Peer::answer(const std::string& kind, transport::Timeout timeout) {
  Bytes bytes;
  try {
    bytes = link_->recv(timeout);
  } catch (const transport::ConnectionLost& error) {
    throw transport::ConnectionLost(fmt::format("{}: {}", name_, error.what()));
  } catch (const transport::TimedOut& error) {
    throw transport::TimedOut(fmt::format("{} does not answer: {}", name_, error.what()));
  }
  auto message = read_message(bytes);
  if (!message) throw PeerFailed(fmt::format("{}: {}", name_, message.error().text()));
  if (message.value().kind == kind) return std::move(message).value();
  if (message.value().kind != "failed") {
    throw PeerFailed(fmt::format("{}: expected the answer {}, got {}", name_, kind, model::in_quotes(message.value().kind)));
  }
  const std::string error = fmt::format("{}: {}", name_, reason_of(message.value()));
  if (is_set(message.value(), "replica")) throw ReplicaLost(error);
  if (is_set(message.value(), "again")) throw transport::ConnectionLost(error);
  throw PeerFailed(error);
}

}  // namespace epipe::train
