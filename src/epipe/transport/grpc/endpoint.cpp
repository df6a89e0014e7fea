#include "epipe/transport/grpc/endpoint.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <grpc/support/log.h>
#include <grpcpp/health_check_service_interface.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "epipe/transport/grpc/grpc_link.h"

namespace epipe::transport {
namespace {

constexpr int kReconnectMs = 100;
constexpr int kHandshakeMs = 10'000;
constexpr int kIdleConnectionMs = 60'000;  // without a stream
constexpr int kMaxMetadataBytes = 16 * 1024;
constexpr int kSpareStreams = 8;  // so that a client hears that the listener is full

bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return ::inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

int parse_port(const std::string& text, const std::string& port) {
  int value = -1;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), value);
  if (port.empty() || error != std::errc() || end != port.data() + port.size() || value < 0 || value > 65535) {
    throw std::invalid_argument(fmt::format("expected host:port or unix:PATH, got '{}'", text));
  }
  return value;
}

template <typename T>
using Owned = std::unique_ptr<T, void (*)(T*)>;

Owned<BIO> memory(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), [](BIO* bio) { BIO_free(bio); }};
}

void require_certificate(const std::string& what, const std::string& pem) {
  const auto bio = memory(pem);
  const Owned<X509> parsed(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), X509_free);
  ERR_clear_error();
  if (!parsed)
    throw std::invalid_argument(fmt::format("{}: expected a certificate in PEM form, got {} bytes of something else", what, pem.size()));
}

void require_identity(const std::string& what, const Identity& identity) {
  require_certificate(what + "'s certificate", identity.certificate_pem);
  const auto certificate_bio = memory(identity.certificate_pem);
  const auto key_bio = memory(identity.key_pem);
  const Owned<X509> certificate(PEM_read_bio_X509(certificate_bio.get(), nullptr, nullptr, nullptr), X509_free);
  const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(key_bio.get(), nullptr, nullptr, nullptr), EVP_PKEY_free);
  const bool fits = key && X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (!fits) throw std::invalid_argument(fmt::format("{}'s private key is not the key of its certificate", what));
}

void require_local(const Address& address) {
  if (address.is_local) return;
  throw std::invalid_argument(
      fmt::format("plaintext is for this machine only (127.0.0.1, ::1, localhost, unix:PATH), got '{}'; use TLS", address.text));
}

// gRPC logs the reason before it aborts; nothing else it logs is news.
void log_assertions(gpr_log_func_args* entry) {
  if (std::strstr(entry->message, "assertion failed") != nullptr)
    std::fprintf(stderr, "gRPC: %s:%d: %s\n", entry->file, entry->line, entry->message);
}

int milliseconds(Timeout timeout) { return static_cast<int>(std::clamp<Timeout::rep>(timeout.count(), 1, INT_MAX)); }

}  // namespace

Address parse_address(const std::string& text) {
  if (text.starts_with("unix:") && text.size() > 5) return {text, text.substr(5), true, true, 0};
  const auto colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) throw std::invalid_argument(fmt::format("expected host:port or unix:PATH, got '{}'", text));
  std::string host = text.substr(0, colon);
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (bracketed) host = host.substr(1, host.size() - 2);
  const bool plain = host.find_first_of("/[]@%? ") == std::string::npos && (bracketed || host.find(':') == std::string::npos);
  if (host.empty() || !plain) throw std::invalid_argument(fmt::format("expected host:port or unix:PATH, got '{}'", text));
  const int port = parse_port(text, text.substr(colon + 1));
  return {text, host, false, is_loopback(host), port};
}

std::shared_ptr<::grpc::ChannelCredentials> channel_credentials(const ConnectConfig& config, const Address& address) {
  if (config.insecure) {
    require_local(address);
    return ::grpc::InsecureChannelCredentials();
  }
  if (address.is_unix) throw std::invalid_argument("Unix sockets are plaintext: set insecure");
  require_certificate("the CA", config.ca_pem);
  ::grpc::SslCredentialsOptions options;
  options.pem_root_certs = config.ca_pem;
  if (config.identity) {
    require_identity("the client", *config.identity);
    options.pem_cert_chain = config.identity->certificate_pem;
    options.pem_private_key = config.identity->key_pem;
  }
  return ::grpc::SslCredentials(options);
}

std::shared_ptr<::grpc::ServerCredentials> server_credentials(const ListenConfig& config, const Address& address) {
  if (config.insecure) {
    require_local(address);
    return ::grpc::InsecureServerCredentials();
  }
  if (address.is_unix) throw std::invalid_argument("Unix sockets are plaintext: set insecure");
  if (!config.identity) throw std::invalid_argument("TLS needs a server certificate and its key");
  if (config.client_ca_pem.empty() && config.tokens.empty() && config.named_tokens.empty()) {
    throw std::invalid_argument("clients need a way to show who they are: give tokens or a CA for client certificates");
  }
  require_identity("the server", *config.identity);
  auto request = GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
  if (!config.client_ca_pem.empty()) {
    require_certificate("the clients' CA", config.client_ca_pem);
    request = GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;  // without one a token is needed
  }
  ::grpc::SslServerCredentialsOptions options(request);
  options.pem_root_certs = config.client_ca_pem;
  options.pem_key_cert_pairs.push_back({config.identity->key_pem, config.identity->certificate_pem});
  return ::grpc::SslServerCredentials(options);
}

::grpc::ChannelArguments channel_arguments(const ConnectConfig& config, const Address& address) {
  ::grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(GrpcLink::kPieceBytes));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, milliseconds(config.keep_alive.idle));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, milliseconds(config.keep_alive.timeout));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // as many as it takes
  arguments.SetInt(GRPC_ARG_HTTP2_MIN_SENT_PING_INTERVAL_WITHOUT_DATA_MS, milliseconds(config.keep_alive.idle));
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // every connector has its own connection
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 10 * kReconnectMs);
  if (address.is_local) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (!config.server_name.empty()) arguments.SetSslTargetNameOverride(config.server_name);
  return arguments;
}

void set_arguments(::grpc::ServerBuilder& builder, const ListenConfig& config) {
  const int idle = milliseconds(config.keep_alive.idle);
  builder.SetMaxReceiveMessageSize(static_cast<int>(GrpcLink::kPieceBytes));
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, config.max_streams + kSpareStreams);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleConnectionMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, idle);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, milliseconds(config.keep_alive.timeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_SENT_PING_INTERVAL_WITHOUT_DATA_MS, idle);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);  // clients choose how often they ping
}

void prepare_grpc() {
  static std::once_flag once;
  std::call_once(once, [] {
    ::grpc::EnableDefaultHealthCheckService(true);
    if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function(log_assertions);
  });
}

}  // namespace epipe::transport
