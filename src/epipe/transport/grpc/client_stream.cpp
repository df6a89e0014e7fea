#include "epipe/transport/grpc/client_stream.h"

#include <fmt/format.h>

#include <string_view>

#include "epipe/base/printable.h"
#include "epipe/transport/grpc/metadata.h"
#include "epipe/transport/refused.h"

namespace epipe::transport {
namespace {

bool says(const std::string& message, std::string_view text) { return message.find(text) != std::string::npos; }

// The handshake completed and was rejected (or was damaged in transit). A connection that broke during it gives SSL_ERROR_SYSCALL.
bool untrusted(const ::grpc::Status& status) {
  const std::string& message = status.error_message();
  return status.error_code() == ::grpc::StatusCode::UNAVAILABLE &&
         (says(message, "SSL_ERROR_SSL") || says(message, "is not in peer certificate"));
}

// What to check if no connection is made; gRPC's own messages only quote its libraries.
std::string hint_for(const ::grpc::Status& status) {
  const std::string& message = status.error_message();
  if (untrusted(status) || says(message, "handshake failed"))
    return "; does it speak TLS, with a certificate for this name that --ca signed?";
  if (says(message, "failed to connect") && says(message, "Socket closed")) {
    return "; it hung up: does one side use TLS and the other --insecure?";
  }
  return "";
}

// A stream that ends in a good state was closed by the peer.
std::string reason_of(const ::grpc::Status& status) {
  if (status.ok()) return "the peer closed the link";
  const std::string& message = status.error_message();
  if (says(message, "Connection refused")) return "nobody answers at this address: start `epipe serve` there";
  return message.empty() ? fmt::format("gRPC status {}", static_cast<int>(status.error_code())) : printable(message) + hint_for(status);
}

}  // namespace

ClientStream::ClientStream(Connection& connection, std::string peer, Timeout send_timeout)
    : Stream(std::move(peer), send_timeout), connection_(connection), stub_(connection.channel()) {}

void ClientStream::start() {
  self_ = std::static_pointer_cast<ClientStream>(shared_from_this());
  stub_.PrepareBidiStreamingCall(&context_, kMethod, {}, this);
  AddHold();  // our own threads start reads and writes, until release()
  StartCall();
  begin();
}

void ClientStream::wait_accepted(Timeout timeout) {
  std::unique_lock lock(mutex_);
  const bool answered = changed_.wait_for(lock, timeout, [this] { return accepted_ || lost_; });
  if (!answered) {
    lock.unlock();
    cancel_because("not accepted in time");
    throw ConnectionLost(fmt::format("{}: no answer within {} ms", peer(), timeout.count()));
  }
  if (!accepted_ && untrusted(status_)) throw Refused(Refusal::kUntrusted, fmt::format("{}: {}", peer(), reason_));
  if (!accepted_) throw_refused(peer(), status_.error_code(), reason_);
  if (version_ == kVersion) return;
  lock.unlock();
  cancel_because("another version");
  throw Refused(Refusal::kVersion,
                fmt::format("{} speaks version {} of the protocol, we speak {}", peer(), printable(version_, 20), kVersion));
}

void ClientStream::finish(const std::string& /*reason*/) { StartWritesDone(); }

void ClientStream::OnReadInitialMetadataDone(bool ok) {
  if (!ok) return;
  const auto& metadata = context_.GetServerInitialMetadata();
  const auto found = metadata.find(kVersionKey);
  if (found == metadata.end()) return;
  {
    const std::lock_guard lock(mutex_);
    version_.assign(found->second.data(), found->second.size());
    accepted_ = true;
  }
  changed_.notify_all();
}

void ClientStream::OnDone(const ::grpc::Status& status) {
  {
    const std::lock_guard lock(mutex_);
    status_ = status;
  }
  on_lost(reason_of(status));
  connection_.retire(std::move(self_));
}

}  // namespace epipe::transport
