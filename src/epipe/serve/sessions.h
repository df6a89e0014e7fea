#pragma once

#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "epipe/base/clock.h"
#include "epipe/serve/config.h"
#include "epipe/serve/server_metrics.h"
#include "epipe/serve/session.h"
#include "epipe/serve/session_report.h"
#include "epipe/serve/socket_folder.h"
#include "epipe/serve/state_store.h"

namespace epipe::serve {

// What passes between a client and its session, as the server's relays see it.
class Activity {
 public:
  void message(bool from_client) {
    last_ = clock_.seconds();
    if (from_client) heard_ = true;
  }
  double silent_seconds() const { return clock_.seconds() - last_; }
  bool heard() const { return heard_; }  // the client said something

 private:
  const Stopwatch clock_{};
  std::atomic<double> last_ = 0;
  std::atomic<bool> heard_ = false;
};

// A session whose process runs.
struct RunningSession {
  pid_t pid = 0;
  std::string name;
  std::string ticket;
  std::string socket;      // "unix:PATH"
  std::string credential;  // of its client: who has a named token, or a certificate, is one; others are the same to us
  SessionConfig::Purpose purpose = SessionConfig::Purpose::kTrain;
  SessionLimits limits;
  StateStore::Claim state;  // null for a measurement
  Stopwatch life{};
  bool condemned = false;                                             // it was killed, and has not ended yet
  std::shared_ptr<Activity> activity = std::make_shared<Activity>();  // shared with its relays
  std::shared_ptr<SessionReports> reports{};                          // shared with copies of this; null for a measurement
};

// Why the server must end it, or nothing: its time, its silence, its memory.
std::string excess_of(const RunningSession& session);

// Who asks for a session.
struct SessionRequest {
  std::string name;        // 32 hex digits
  std::string ticket;      // 64 hex digits
  std::string credential;  // a client certificate; empty for the holders of the token
  std::string client;      // the name of the token that was shown; empty for those without one
  std::string peer;        // "ipv4:127.0.0.1:54321", for the log
  bool may_start = false;  // it opens a command channel
};

// The processes of a server's sessions. Limits on time, silence and memory are kept from here, outside the limited process: a session that
// spins, hangs or grows is killed.
class Sessions {
 public:
  // `metrics` outlives it.
  Sessions(const ServeConfig& config, ServerMetrics& metrics);
  ~Sessions();  // kills what runs
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;

  // The session of that name, started where it does not run. Throws Refused; std::runtime_error when it does not start. Call it from a
  // thread that lives as long as the server.
  RunningSession find_or_start(const SessionRequest& request);
  // A process that answers one measuring client, and holds no secret. The same errors.
  RunningSession start_measuring(const std::string& credential, const std::string& peer);
  // Forgets the sessions that ended and kills those above their limits; returns how many run.
  std::size_t watch();
  // Removes what ended sessions have kept for too long, or too much of. The serving thread's, because it takes its time.
  void clean() { store_.clean(); }
  // How sessions that begin from now on dial other servers, and who may begin them with which limits.
  void renew(const Credentials& credentials);
  void kill(const RunningSession& session, const std::string& reason);
  // Adds what runs now, and what all sessions have done.
  void show(monitor::MetricPage& page);
  // No session begins any more; those that run are told to save and end.
  void drain();

 private:
  int running(SessionConfig::Purpose purpose) const;
  int running_of(SessionConfig::Purpose purpose, const std::string& credential) const;
  void check_room(const SessionRequest& request) const;
  const Client* find_client(const std::string& name) const;
  RunningSession start(SessionConfig config, StateStore::Claim state, const std::string& credential, const std::string& peer);
  bool has_ended(const RunningSession& session);

  ServeConfig config_;
  ServerMetrics& metrics_;
  SocketFolder sockets_;
  StateStore store_;
  std::mutex mutex_;                               // guards what follows
  std::map<std::string, RunningSession> running_;  // by name
  std::set<std::string> expired_;                  // sessions that have had their time
  bool draining_ = false;
  int measured_ = 0;  // measuring processes so far
};

}  // namespace epipe::serve
