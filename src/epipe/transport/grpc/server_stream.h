#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <functional>
#include <map>

#include "epipe/transport/grpc/stream.h"
#include "epipe/transport/network_config.h"
#include "epipe/transport/refused.h"

namespace epipe::transport {

// The listening side of a stream. Created on the client's request; pieces flow once it is accepted.
class ServerStream final : public Stream, private ::grpc::ServerGenericBidiReactor {
 public:
  // gRPC calls `on_done` once it is done with the stream.
  ServerStream(::grpc::GenericCallbackServerContext& context, const ListenConfig& config, std::string token_name,
               std::function<void(ServerStream*)> on_done);

  // For gRPC, which from here on shares ownership of the stream with its handler.
  ::grpc::ServerGenericBidiReactor* start();
  void accept();
  void refuse(Refusal why, const std::string& text);

  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& certificate_name() const { return certificate_name_; }
  const std::string& credential() const { return credential_; }
  const std::string& token_name() const { return token_name_; }
  std::uint64_t max_message_bytes() const { return max_message_bytes_; }

 private:
  void start_read(::grpc::ByteBuffer* piece) override { StartRead(piece); }
  void start_write(const ::grpc::ByteBuffer* piece) override { StartWrite(piece); }
  void finish(const std::string& reason) override;
  void release() override {}
  void cancel() override;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override { on_write(ok); }
  void OnCancel() override;
  void OnDone() override;

  std::mutex context_mutex_;
  bool done_ = false;                              // guarded by context_mutex_: the context is gone
  ::grpc::GenericCallbackServerContext& context_;  // gRPC's, until OnDone
  const std::uint64_t max_message_bytes_;
  const std::map<std::string, std::string> metadata_;
  const std::string certificate_name_;
  const std::string credential_;
  const std::string token_name_;
  std::function<void(ServerStream*)> on_done_;
  std::shared_ptr<ServerStream> self_;  // from start() until gRPC is done
  bool answered_ = false;               // accepted or refused; guarded by mutex_
};

}  // namespace epipe::transport
