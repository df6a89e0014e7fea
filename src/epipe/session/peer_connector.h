#pragma once

#include <memory>
#include <string>
#include <vector>

#include "epipe/transport/link.h"

namespace epipe::session {

// How the coordinator of a run reaches its other processes, one per worker except its own, and the leaders of the other replicas.
class PeerConnector {
 public:
  virtual ~PeerConnector() = default;
  virtual std::vector<int> workers() const = 0;
  // The leaders of the other replicas, numbered after all workers, in the replicas' order.
  virtual std::vector<int> leaders() const = 0;
  virtual std::string name(int worker) const = 0;  // "worker 1 at host:port"
  // The addresses at which other workers find worker 1, 2, ...; empty if they need none.
  virtual std::vector<std::string> addresses() const = 0;
  // A command link to the process of a worker or leader. Throws ConnectionLost.
  virtual std::unique_ptr<transport::Link> command_channel(int worker) = 0;
  // The coordinator's end of the data channel at `cut` to worker `peer`; `attempt` counts the connections of the run. Throws
  // ConnectionLost.
  virtual std::unique_ptr<transport::Link> data_channel(int cut, int peer, std::uint64_t attempt) = 0;
};

}  // namespace epipe::session
