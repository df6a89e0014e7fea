#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "epipe/model/script_files.h"
#include "epipe/serve/token_file.h"
#include "epipe/transport/network_config.h"

namespace epipe::serve {

// What one client may use. A session that wants more is refused, or ended.
struct SessionLimits {
  std::uint64_t memory_bytes = 0;                                    // of its process; 0: no limit
  double seconds = 0;                                                // of its process; 0: no limit
  double idle_seconds = 600;                                         // without a command, or without a client
  int in_flight = 64;                                                // micro-batches between their forward and their backward
  int threads = 64;                                                  // inside an operator
  double timeout = 120;                                              // seconds without a tensor within a step
  std::uint64_t message_bytes = transport::kDefaultMaxMessageBytes;  // of a command or a frame
};

// What the sessions' checkpoints may take of the disk.
struct StateLimits {
  std::optional<std::uint64_t> bytes;  // of all sessions; 0: no limit; nothing: half of what the disk has for them when the server starts
  double days = 30;                    // since a session was last used; 0: no limit
  std::uint64_t reuse_bytes = 1'000'000'000;  // of the activations that one session keeps, beside its checkpoints; 0: none
};

// What a server and its sessions show, and what they ask of others.
struct Credentials {
  transport::ListenConfig listen;  // certificate, clients' CA, tokens
  transport::ConnectConfig dial;   // of sessions that dial other servers
  std::vector<Client> clients;     // whose tokens `listen` names
};

struct ServeConfig {
  transport::ListenConfig listen;
  std::string state_dir;  // sessions keep their checkpoints here, to survive the server
  StateLimits state;
  std::vector<Client> clients;  // whose tokens `listen` names
  int max_sessions = 4;
  int share = 0;  // sessions that one credential may have at once; 0: see share_of
  SessionLimits limits;
  std::string device = "cpu";
  model::ScriptFiles scripts;      // TorchScript files that sessions may build models from
  std::vector<std::string> peers;  // addresses of servers that sessions may dial
  transport::ConnectConfig dial;   // how they dial them
  double drain_seconds = 60;       // sessions have this long to be saved when the server is told to end
  std::string metrics;             // HOST:PORT of /metrics and /healthz; empty: none
  std::string audit_log;           // a file; empty: none
  std::string version;             // of the program, for the metrics
  // Renewal without a restart: when `renew` becomes true, the server sets it back, opens the audit log again, and asks for what is valid
  // from now on. What is thrown is logged, and the old ones stay. Null: never.
  std::atomic<bool>* renew = nullptr;
  std::function<Credentials()> read_credentials{};

  // A client certificate is one client's: unless said otherwise it gets half of the places. The token is everybody's.
  int share_of(const std::string& certificate) const {
    if (share > 0) return share;
    return certificate.empty() ? max_sessions : (max_sessions + 1) / 2;
  }
};

}  // namespace epipe::serve
