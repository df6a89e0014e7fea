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
    kMeasureLink,  // answers somebody who measures the link to the server: `epipe bench link`
    kSayItsSize,   // prints held_bytes() and ends
  };
  Purpose purpose = Purpose::kTrain;
  std::string socket;             // "unix:PATH" where the server hands over the client's links
  std::string state_dir;          // of this session
  std::uint64_t state_bytes = 0;  // that its checkpoints may take there; 0: no limit
  std::uint64_t reuse_bytes = 0;  // that activations of --reuse-activations may take there; 0: none are kept
  std::string name;               // with the ticket, what a peer shows
  std::string ticket;
  SessionLimits limits;
  int nice = 0;  // levels above the server's: its share where the CPU is short
  std::string device = "cpu";
  model::ScriptFiles scripts;
  std::vector<std::string> peers;
  transport::ConnectConfig dial;
};

// The life of one session, in a process of its own: handles the client, and waits for it when it is lost. Returns when the run has ended,
// when nobody came for as long as the limits allow, or when `drain` is set and the client has left.
void run_session(const SessionConfig& config, const train::Registry& registry, const std::atomic<bool>& drain);

}  // namespace epipe::serve
