#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "epipe/transport/link.h"
#include "epipe/transport/refused.h"

namespace epipe::transport {

// A certificate chain and its private key.
struct Identity {
  std::string certificate_pem;
  std::string key_pem;
};

// How a link that is cut or stalled is noticed: after `idle` without a sign of the peer it is asked for one, and after another
// `timeout` without an answer the link is lost.
struct KeepAlive {
  Timeout idle = std::chrono::seconds(10);
  Timeout timeout = std::chrono::seconds(20);
};

inline constexpr std::uint64_t kDefaultMaxMessageBytes = std::uint64_t{1} << 32;
// A peer that takes nothing for so long is lost, however alive it is.
inline constexpr Timeout kSendTimeout = std::chrono::minutes(10);

// Addresses are "host:port", "[::1]:port" or "unix:PATH".
struct ConnectConfig {
  std::string address;
  bool insecure = false;             // plaintext; only to this machine (loopback, Unix sockets)
  std::string ca_pem;                // who signs the listener's certificate
  std::string server_name;           // the name in its certificate, where it differs from the address
  std::optional<Identity> identity;  // a client certificate
  std::string token;                 // sent as "authorization: Bearer ..."; empty: none
  std::uint64_t max_message_bytes = kDefaultMaxMessageBytes;
  Timeout connect_timeout = std::chrono::seconds(20);
  Timeout send_timeout = kSendTimeout;
  KeepAlive keep_alive;
};

// A token that a listener takes from one client, by its hash: the token itself is the client's alone.
struct NamedToken {
  std::string name;    // of the client
  std::string sha256;  // of the token, 64 hex digits
};

struct ListenConfig {
  std::string address;               // port 0: any free one
  bool insecure = false;             // plaintext; only on this machine
  std::optional<Identity> identity;  // the certificate clients see; needed unless insecure
  std::string client_ca_pem;         // clients with a certificate signed by this one need no token
  std::vector<std::string> tokens;   // any of these will do; when empty, a certificate is needed (or insecure)
  std::vector<NamedToken> named_tokens{};  // and any of these
  int max_streams = 64;              // links open at once, over all clients
  int max_connections = 256;         // TCP connections open at once, whether or not they have shown who they are
  int max_per_address = 192;         // of these, from one host
  std::uint64_t max_message_bytes = kDefaultMaxMessageBytes;
  Timeout send_timeout = kSendTimeout;
  KeepAlive keep_alive;
  // Told of everybody who is turned away before a handler sees the link. Any thread; may be empty.
  std::function<void(const std::string& peer, Refusal why, const std::string& reason)> on_refused{};
};

}  // namespace epipe::transport
