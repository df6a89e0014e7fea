#pragma once

#include <memory>
#include <string>
#include <vector>

#include "epipe/transport/link.h"

namespace epipe::session {

// How the coordinator of a run gets to its other processes, one per worker but its own, and to those that lead the other replicas.
class PeerConnector {
 public:
  virtual ~PeerConnector() = default;
  virtual std::vector<int> workers() const = 0;
  // The leaders of the other replicas, as numbers above those of all workers, in the replicas' order.
  virtual std::vector<int> leaders() const = 0;
  virtual std::string name(int worker) const = 0;  // "worker 1 at host:port"
  // Where other workers find worker 1, 2, ...; none where they know.
  virtual std::vector<std::string> addresses() const = 0;
  // A link for commands to the process of a worker or leader. Throws ConnectionLost.
  virtual std::unique_ptr<transport::Link> command_channel(int worker) = 0;
  // The coordinator's end of the data channel at `cut` to worker `peer`; `attempt` counts the connections of the run. Throws
  // ConnectionLost.
  virtual std::unique_ptr<transport::Link> data_channel(int cut, int peer, std::uint64_t attempt) = 0;
};

}  // namespace epipe::session
