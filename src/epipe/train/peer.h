#pragma once

#include <memory>
#include <string>
#include <vector>

#include "epipe/train/message.h"
#include "epipe/transport/link.h"

namespace epipe::train {

// How the client of a run gets to its other processes, one per worker but its own, and to those that lead the other replicas.
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
  // The client's end of the data channel at `cut` to worker `peer`; `attempt` counts the connections of the run. Throws ConnectionLost.
  virtual std::unique_ptr<transport::Link> data_channel(int cut, int peer, std::uint64_t attempt) = 0;
};

// Another process refused or failed for a reason that connecting again does not change.
class PeerFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One other process of the run, as its client sees it.
class Peer {
 public:
  enum class Role : std::uint8_t { kWorker, kLeader };  // of another replica
  Peer(int worker, Role role, std::string name, std::unique_ptr<transport::Link> link, transport::Timeout timeout)
      : worker_(worker), role_(role), name_(std::move(name)), link_(std::move(link)), timeout_(timeout) {}

  int worker() const { return worker_; }
  bool leads() const { return role_ == Role::kLeader; }
  const std::string& name() const { return name_; }
  void ask(const Message& command);
  // The answer, which must be of this kind. Throws ConnectionLost or TimedOut, also when the peer says that connecting again may help, and
  // PeerFailed otherwise; all name the peer.
  Message answer(const std::string& kind) { return answer(kind, timeout_); }
  Message answer(const std::string& kind, transport::Timeout timeout);
  void close() { link_->close(); }

 private:
  int worker_;
  Role role_;
  std::string name_;
  std::unique_ptr<transport::Link> link_;
  transport::Timeout timeout_;
};

}  // namespace epipe::train
