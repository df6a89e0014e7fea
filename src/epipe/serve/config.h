#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "epipe/model/script_files.h"
#include "epipe/monitor/metric_page.h"
#include "epipe/serve/token_file.h"
#include "epipe/transport/network_config.h"

namespace epipe::serve {

// What one client may use. A session that needs more is refused, or ended.
struct SessionLimits {
  std::uint64_t memory_bytes = 0;                                    // of its process; 0: no limit
  double seconds = 0;                                                // lifetime of its process; 0: no limit
  double idle_seconds = 600;                                         // without a command, or without a client
  int in_flight = 64;                                                // micro-batches between their forward and their backward
  int threads = 64;                                                  // inside an operator
  double timeout = 120;                                              // seconds without a tensor within a step
  std::uint64_t message_bytes = transport::kDefaultMaxMessageBytes;  // of a command or a frame
};

// How much disk space the sessions' checkpoints may use.
struct StateLimits {
  std::optional<std::uint64_t> bytes;         // of all sessions; 0: no limit; nullopt: half of the space available to them at the start
  double days = 30;                           // since a session was last used; 0: no limit
  std::uint64_t reuse_bytes = 1'000'000'000;  // for the activations one session keeps, besides its checkpoints; 0: none
};

// How a server and its sessions authenticate themselves and others.
struct Credentials {
  transport::ListenConfig listen;  // certificate, clients' CA, tokens
  transport::ConnectConfig dial;   // for sessions that dial other servers
  std::vector<Client> clients;     // their tokens are in `listen`
};

struct ServeConfig {
  transport::ListenConfig listen;
  std::string state_dir;  // sessions keep their checkpoints here, to survive the server
  StateLimits state;
  std::vector<Client> clients;  // their tokens are in `listen`
  int max_sessions = 4;
  int share = 0;  // sessions one credential may have at once; 0: see share_of
  SessionLimits limits;
  std::string device = "cpu";
  model::ScriptFiles scripts;      // TorchScript files that sessions may build models from
  std::vector<std::string> peers;  // addresses of servers that sessions may dial
  transport::ConnectConfig dial;   // how they dial them
  double drain_seconds = 60;       // time for sessions to be saved when the server is told to end
  std::string metrics;             // HOST:PORT of /metrics and /healthz; empty: none
  std::string audit_log;           // a file; empty: none
  std::string version;             // of the program
  monitor::Labels build;           // of epipe_build_info
  // Renewal without a restart: when `renew` becomes true, the server resets it, reopens the audit log, and calls read_credentials().
  // Exceptions are logged, and the old credentials stay. Null: never.
  std::atomic<bool>* renew = nullptr;
  std::function<Credentials()> read_credentials{};

  // A client certificate belongs to one client, which by default gets half of the places. The common token belongs to everybody.
  int share_of(const std::string& certificate) const {
    if (share > 0) return share;
    return certificate.empty() ? max_sessions : (max_sessions + 1) / 2;
  }
};

}  // namespace epipe::serve
