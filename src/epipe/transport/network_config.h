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

// How a cut or stalled link is detected: after `idle` without traffic the peer is pinged, and after another `timeout` without an answer
// the link is lost.
struct KeepAlive {
  Timeout idle = std::chrono::seconds(10);
  Timeout timeout = std::chrono::seconds(20);
};

inline constexpr std::uint64_t kDefaultMaxMessageBytes = std::uint64_t{1} << 32;
// A peer that takes nothing for this long counts as lost, even if it is alive.
inline constexpr Timeout kSendTimeout = std::chrono::minutes(10);

// Addresses are "host:port", "[::1]:port" or "unix:PATH".
struct ConnectConfig {
  std::string address;
  bool insecure = false;             // plaintext; only to this machine (loopback, Unix sockets)
  std::string ca_pem;                // the CA that signs the listener's certificate
  std::string server_name;           // the name in its certificate, if it differs from the address
  std::optional<Identity> identity;  // a client certificate
  std::string token;                 // sent as "authorization: Bearer ..."; empty: none
  std::uint64_t max_message_bytes = kDefaultMaxMessageBytes;
  Timeout connect_timeout = std::chrono::seconds(20);
  Timeout send_timeout = kSendTimeout;
  KeepAlive keep_alive;
};

// A token that a listener accepts from one client, stored as a hash: only the client has the token itself.
struct NamedToken {
  std::string name;    // of the client
  std::string sha256;  // of the token, 64 hex digits
};

struct ListenConfig {
  std::string address;  // port 0: any free one
  // Listening TCP sockets of that port which somebody else opened and holds as well (handed_over.h). They are used instead of a socket of
  // the listener's own and closed with it, but not shut down: clients that wait to be accepted then wait for the next listener.
  std::vector<int> sockets{};
  bool insecure = false;                   // plaintext; only on this machine
  std::optional<Identity> identity;        // the certificate clients see; needed unless insecure
  std::string client_ca_pem;               // clients with a certificate signed by this one need no token
  std::vector<std::string> tokens;         // any of these is accepted; if empty, a certificate is needed (or insecure)
  std::vector<NamedToken> named_tokens{};  // also accepted
  int max_streams = 64;                    // links open at once, over all clients
  int max_connections = 256;               // TCP connections open at once, authenticated or not
  int max_per_address = 192;               // of these, from one host
  std::uint64_t max_message_bytes = kDefaultMaxMessageBytes;
  Timeout send_timeout = kSendTimeout;
  KeepAlive keep_alive;
  // Called for every client refused before a handler sees the link. Any thread; may be empty.
  std::function<void(const std::string& peer, Refusal why, const std::string& reason)> on_refused{};
};

}  // namespace epipe::transport
