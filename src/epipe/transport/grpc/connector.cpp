#include "epipe/transport/connector.h"

#include <grpcpp/create_channel.h>

#include "epipe/transport/grpc/client_stream.h"
#include "epipe/transport/grpc/endpoint.h"
#include "epipe/transport/grpc/grpc_link.h"
#include "epipe/transport/grpc/metadata.h"

namespace epipe::transport {

struct Connector::State {
  ConnectConfig config;
  std::string authorization;
  std::shared_ptr<Connection> connection;  // shared with the links
};

Connector::Connector(ConnectConfig config) : state_(std::make_unique<State>()) {
  prepare_grpc();
  const Address address = parse_address(config.address);
  if (!config.token.empty()) state_->authorization = bearer(config.token);
  const std::string target = address.is_unix ? address.text : "dns:///" + address.text;
  state_->connection = std::make_shared<Connection>(
      ::grpc::CreateCustomChannel(target, channel_credentials(config, address), channel_arguments(config, address)));
  state_->config = std::move(config);
}

Connector::~Connector() = default;

std::unique_ptr<Link> Connector::open(const std::map<std::string, std::string>& about) {
  const auto stream = std::make_shared<ClientStream>(*state_->connection, state_->config.address, state_->config.send_timeout);
  auto& context = stream->context();
  context.AddMetadata(kVersionKey, kVersion);
  if (!state_->authorization.empty()) context.AddMetadata(kTokenKey, state_->authorization);
  for (const auto& [key, value] : to_metadata(about)) context.AddMetadata(key, value);
  stream->start();
  // Ends the stream when it is not accepted.
  auto link = std::make_unique<GrpcLink>(stream, state_->config.max_message_bytes, state_->connection);
  stream->wait_accepted(state_->config.connect_timeout);
  return link;
}

}  // namespace epipe::transport
