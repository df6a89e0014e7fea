#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include "epipe/transport/grpc/connection.h"
#include "epipe/transport/grpc/stream.h"

namespace epipe::transport {

// The dialing side of a stream.
class ClientStream final : public Stream, private ::grpc::ClientBidiReactor<::grpc::ByteBuffer, ::grpc::ByteBuffer> {
 public:
  // The connection outlives the stream.
  ClientStream(Connection& connection, std::string peer, Timeout send_timeout);

  ::grpc::ClientContext& context() { return context_; }  // metadata, before start()
  void start();
  // Waits until the listener accepts. Throws Refused or ConnectionLost.
  void wait_accepted(Timeout timeout);
  void be_over() { on_over(); }  // called by the connection's thread

 private:
  void start_read(::grpc::ByteBuffer* piece) override { StartRead(piece); }
  void start_write(const ::grpc::ByteBuffer* piece) override { StartWrite(piece); }
  void finish(const std::string& reason) override;
  void release() override { RemoveHold(); }
  void cancel() override { context_.TryCancel(); }

  void OnReadInitialMetadataDone(bool ok) override;
  void OnReadDone(bool ok) override { on_read(ok); }
  void OnWriteDone(bool ok) override { on_write(ok); }
  void OnDone(const ::grpc::Status& status) override;

  Connection& connection_;
  ::grpc::GenericStub stub_;
  ::grpc::ClientContext context_;
  bool accepted_ = false;
  std::string version_;                 // the listener's, once it accepted
  ::grpc::Status status_;               // once the stream has ended
  std::shared_ptr<ClientStream> self_;  // from start() until gRPC is done
};

}  // namespace epipe::transport
