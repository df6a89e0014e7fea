#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>

#include "epipe/transport/network_config.h"

// Addresses, credentials and settings used by both sides of a connection.
namespace epipe::transport {

struct Address {
  std::string text;  // as configured
  std::string host;  // without port and brackets; for a Unix socket, its path
  bool is_unix = false;
  bool is_local = false;  // reachable only from this machine
  int port = 0;
};

// Throws std::invalid_argument.
Address parse_address(const std::string& text);

// Throw std::invalid_argument for plaintext that would leave the machine, and for certificates and keys that do not parse.
std::shared_ptr<::grpc::ChannelCredentials> channel_credentials(const ConnectConfig& config, const Address& address);
std::shared_ptr<::grpc::ServerCredentials> server_credentials(const ListenConfig& config, const Address& address);

::grpc::ChannelArguments channel_arguments(const ConnectConfig& config, const Address& address);
void set_arguments(::grpc::ServerBuilder& builder, const ListenConfig& config);

// Call once per process, before using gRPC: servers answer the health service, and gRPC's own complaints about peers stay off stderr
// unless GRPC_VERBOSITY asks for them; ours say the same, once.
void prepare_grpc();

}  // namespace epipe::transport
