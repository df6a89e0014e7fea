#pragma once

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <map>
#include <memory>
#include <string>

#include "epipe/base/queue.h"

namespace epipe::testing {

// A client that speaks gRPC, but not as a connector does.
class Stranger final : public ::grpc::ClientBidiReactor<::grpc::ByteBuffer, ::grpc::ByteBuffer> {
 public:
  Stranger(int port, const std::string& method, const std::map<std::string, std::string>& metadata)
      : channel_(::grpc::CreateChannel("127.0.0.1:" + std::to_string(port), ::grpc::InsecureChannelCredentials())), stub_(channel_) {
    for (const auto& [key, value] : metadata) context_.AddMetadata(key, value);
    stub_.PrepareBidiStreamingCall(&context_, method, {}, this);
    AddHold();
    StartCall();
    StartRead(&answer_);
  }
  void send(const std::string& piece) {
    const ::grpc::Slice slice(piece);
    piece_ = ::grpc::ByteBuffer(&slice, 1);
    StartWrite(&piece_);
    written_.pop();
  }
  ::grpc::Status end() {
    RemoveHold();
    return over_.pop();
  }

 private:
  void OnWriteDone(bool /*ok*/) override { written_.push(true); }
  void OnDone(const ::grpc::Status& status) override { over_.push(status); }

  std::shared_ptr<::grpc::Channel> channel_;
  ::grpc::GenericStub stub_;
  ::grpc::ClientContext context_;
  ::grpc::ByteBuffer piece_;
  ::grpc::ByteBuffer answer_;
  Queue<bool> written_{8};
  Queue<::grpc::Status> over_{1};
};

}  // namespace epipe::testing
