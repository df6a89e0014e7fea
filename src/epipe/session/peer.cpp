#include "epipe/session/peer.h"

#include <fmt/format.h>

#include "epipe/base/printable.h"
#include "epipe/session/reducer.h"

namespace epipe::session {

void Peer::send(const Command& command) {
  try {
    link_->send(to_bytes(command));
  } catch (const transport::ConnectionLost& error) {
    throw transport::ConnectionLost(fmt::format("{}: {}", name_, error.what()));
  }
}

Reply Peer::recv_reply(transport::Timeout timeout) {
  Bytes bytes;
  try {
    bytes = link_->recv(timeout);
  } catch (const transport::ConnectionLost& error) {
    throw transport::ConnectionLost(fmt::format("{}: {}", name_, error.what()));
  } catch (const transport::TimedOut& error) {
    throw transport::TimedOut(fmt::format("{} does not answer: {}", name_, error.what()));
  }
  auto reply = read_reply(bytes);
  if (!reply) throw PeerFailed(fmt::format("{}: {}", name_, reply.error().text()));
  return std::move(reply).value();
}

void Peer::refuse(const Reply& reply, std::string_view expected) const {
  const auto* const failed = std::get_if<ErrorReply>(&reply);
  if (failed == nullptr) throw PeerFailed(fmt::format("{}: expected the reply {}, got {}", name_, expected, name_of(reply)));
  const std::string error = fmt::format("{}: {}", name_, failed->error.empty() ? "no reason" : printable(failed->error));
  if (failed->replica_lost) throw ReplicaLost(error);
  if (failed->retry) throw transport::ConnectionLost(error);
  throw PeerFailed(error);
}

}  // namespace epipe::session
