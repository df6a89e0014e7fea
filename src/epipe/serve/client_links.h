#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "epipe/serve/refusal_log.h"
#include "epipe/serve/server_metrics.h"
#include "epipe/serve/sessions.h"
#include "epipe/transport/listener.h"
#include "epipe/transport/relay.h"

namespace epipe::serve {

inline constexpr int kLinksOfSession = 32;  // commands, and a data channel for each cut

// The links of clients to their sessions: each is opened by its own thread, then relayed until one side ends. Any thread.
class ClientLinks {
 public:
  // Called for a session that does not accept its client's link.
  using OnHang = std::function<void(const RunningSession& session, const std::string& reason)>;
  // Called for a measurement whose client is gone: it ends at once, for others to measure.
  using OnMeasured = std::function<void(const RunningSession& session)>;
  // The references outlive it.
  ClientLinks(ServerMetrics& metrics, RefusalLog& refusals, OnHang on_hang, OnMeasured on_measured)
      : metrics_(metrics), refusals_(refusals), on_hang_(std::move(on_hang)), on_measured_(std::move(on_measured)) {}
  ~ClientLinks();  // waits for links that are being opened
  ClientLinks(const ClientLinks&) = delete;
  ClientLinks& operator=(const ClientLinks&) = delete;

  // Opens the link to the session and begins to relay; returns at once.
  void connect(const std::shared_ptr<transport::Incoming>& asking, const RunningSession& session);
  int count(const std::string& session) const;
  int opening() const;
  int open() const;
  // Tells the clients of a session why it ends.
  void close(const std::string& session, const std::string& reason);
  // Removes ended links.
  void clear();

  static transport::Timeout send_timeout(const SessionLimits& limits);

 private:
  // A thread that opens a client's link to the session, and whether it is done.
  struct Connecting {
    std::string session;
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> done = std::make_shared<std::atomic<bool>>(false);  // shared with the thread
  };
  struct Connected {
    std::string session;
    std::unique_ptr<transport::Relay> relay;
    std::optional<RunningSession> measurement;  // if it is one
  };
  void open(transport::Incoming& incoming, const RunningSession& session);

  ServerMetrics& metrics_;
  RefusalLog& refusals_;
  const OnHang on_hang_;
  const OnMeasured on_measured_;
  mutable std::mutex mutex_;  // guards the members below
  std::list<Connecting> connecting_;
  std::list<Connected> connected_;
};

}  // namespace epipe::serve
