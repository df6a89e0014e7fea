#include "epipe/transport/grpc/server_stream.h"

#include <utility>

#include "epipe/transport/grpc/metadata.h"

namespace epipe::transport {
namespace {

// A property of the verified certificate; empty without one.
std::string property(const ::grpc::CallbackServerContext& context, const char* name) {
  const auto auth = context.auth_context();
  if (!auth || !auth->IsPeerAuthenticated()) return {};
  const auto values = auth->FindPropertyValues(name);
  return values.empty() ? "?" : std::string(values[0].data(), values[0].size());
}

}  // namespace

ServerStream::ServerStream(::grpc::GenericCallbackServerContext& context, const ListenConfig& config, std::string token_name,
                           std::function<void(ServerStream*)> on_done)
    : Stream(context.peer(), config.send_timeout),
      context_(context),
      max_message_bytes_(config.max_message_bytes),
      metadata_(about_of(context.client_metadata())),
      certificate_name_(property(context, "x509_common_name")),
      credential_(property(context, "x509_pem_cert")),
      token_name_(std::move(token_name)),
      on_done_(std::move(on_done)) {}

::grpc::ServerGenericBidiReactor* ServerStream::start() {
  self_ = std::static_pointer_cast<ServerStream>(shared_from_this());
  return this;
}

void ServerStream::accept() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(answered_, true)) return;
  }
  context_.AddInitialMetadata(kVersionKey, kVersion);
  StartSendInitialMetadata();
  begin();
}

void ServerStream::refuse(Refusal why, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(answered_, true)) return;
  }
  Finish(refusal_status(why, text));
}

void ServerStream::finish(const std::string& reason) {
  Finish(reason.empty() ? ::grpc::Status::OK : ::grpc::Status(::grpc::StatusCode::ABORTED, reason));
}

void ServerStream::cancel() {
  const std::lock_guard lock(context_mutex_);
  if (!done_) context_.TryCancel();
}

void ServerStream::OnReadDone(bool ok) {
  if (!ok) on_lost(context_.IsCancelled() ? "the connection was lost" : "the peer closed the link");
  on_read(ok);
}

void ServerStream::OnCancel() {
  on_lost("the connection was lost");
  on_ended();
}

void ServerStream::OnDone() {
  const auto self = std::move(self_);
  {
    const std::lock_guard lock(context_mutex_);
    done_ = true;
  }
  on_lost("the stream has ended");
  on_done_(this);
  on_over();
}

}  // namespace epipe::transport
