#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "epipe/serve/config.h"
#include "epipe/train/registry.h"

namespace epipe::serve {

struct SessionConfig {
  enum class Purpose : std::uint8_t {
    kTrain,
    kMeasureLink,  // answers a client that measures the link to the server: `epipe bench link`
    kSayItsSize,   // prints held_bytes() and ends
  };
  Purpose purpose = Purpose::kTrain;
  std::string socket;             // "unix:PATH" through which the server connects the client's links
  std::string state_dir;          // of this session
  std::uint64_t state_bytes = 0;  // limit for its checkpoints there; 0: no limit
  std::uint64_t reuse_bytes = 0;  // limit for activations of --reuse-activations there; 0: keeps none
  std::string name;               // a peer shows this and the ticket
  std::string ticket;
  SessionLimits limits;
  int nice = 0;  // levels above the server's: determines its share of a busy CPU
  std::string device = "cpu";
  model::ScriptFiles scripts;
  std::vector<std::string> peers;
  transport::ConnectConfig dial;
};

// Runs one session, in its own process: handles the client, and waits for it when it is lost. Returns when the run has ended, when no
// client came for as long as the limits allow, or when `drain` is set and the client has left.
void run_session(const SessionConfig& config, const train::Registry& registry, const std::atomic<bool>& drain);

}  // namespace epipe::serve
