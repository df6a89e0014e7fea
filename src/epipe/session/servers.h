#pragma once

#include <map>
#include <string>
#include <vector>

#include "epipe/session/peer_connector.h"
#include "epipe/transport/connector.h"

namespace epipe::session {

// A session on several servers is identified by its name; continuing it requires its ticket.
struct SessionKey {
  std::string name;    // 32 hex digits
  std::string ticket;  // 64 hex digits, a secret between client and servers
};
// A key for a run that leaves nothing behind here.
SessionKey new_session_key();
// The key of the run in this directory: with `resume` its original key, otherwise a new one. Throws std::runtime_error.
SessionKey session_key(const std::string& run_dir, bool resume);

// The metadata of a stream to a server: its session, and the command channel or one end of a data channel at a cut.
std::map<std::string, std::string> command_channel_metadata(const SessionKey& key, int worker);
std::map<std::string, std::string> data_channel_metadata(const SessionKey& key, int from, int to, int cut, std::uint64_t attempt);

// Workers 1, 2, ... on servers.
class Servers final : public PeerConnector {
 public:
  // `common`: how to dial; the addresses, one server per worker, are filled in.
  Servers(std::vector<std::string> addresses, transport::ConnectConfig common, SessionKey key);

  std::vector<int> workers() const override;
  std::vector<int> leaders() const override { return {}; }
  std::string name(int worker) const override;
  std::vector<std::string> addresses() const override { return addresses_; }
  std::unique_ptr<transport::Link> command_channel(int worker) override;
  std::unique_ptr<transport::Link> data_channel(int cut, int peer, std::uint64_t attempt) override;

 private:
  const std::string& address(int worker) const { return addresses_.at(static_cast<std::size_t>(worker) - 1); }

  std::vector<std::string> addresses_;
  transport::ConnectConfig common_;
  SessionKey key_;
  std::map<int, std::unique_ptr<transport::Connector>> connectors_;  // the newest connection to each worker's server
};

}  // namespace epipe::session
