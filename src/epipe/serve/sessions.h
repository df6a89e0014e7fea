#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>

#include "epipe/base/clock.h"
#include "epipe/serve/audit_log.h"
#include "epipe/serve/config.h"
#include "epipe/serve/server_metrics.h"
#include "epipe/serve/session.h"
#include "epipe/serve/session_report.h"
#include "epipe/serve/socket_folder.h"
#include "epipe/serve/state_store.h"
#include "epipe/serve/usage_book.h"

namespace epipe::serve {

// The traffic between a client and its session, as seen by the server's relays.
class Activity {
 public:
  void message(bool from_client, std::size_t bytes) {
    last_ = clock_.seconds();
    bytes_[from_client ? 0 : 1] += bytes;
    if (from_client) heard_ = true;
  }
  // A link was opened. Only the first counts, so that opening more links without sending anything gains no time.
  void opened() {
    if (!was_opened()) opened_ = clock_.seconds();
  }
  // Since the first link was opened, or since the session began if there was none.
  double waiting_seconds() const { return clock_.seconds() - opened_; }
  bool was_opened() const { return opened_ > 0; }
  double silent_seconds() const { return clock_.seconds() - last_; }
  bool heard() const { return heard_; }  // the client has sent something
  std::uint64_t received() const { return bytes_[0]; }
  std::uint64_t sent() const { return bytes_[1]; }

 private:
  const Stopwatch clock_{};
  std::atomic<double> last_ = 0;
  std::atomic<double> opened_ = 0;
  std::atomic<bool> heard_ = false;
  std::array<std::atomic<std::uint64_t>, 2> bytes_{};
};

// A session with a running process.
struct RunningSession {
  pid_t pid = 0;
  std::string name;
  std::string ticket;
  std::string socket;      // "unix:PATH"
  std::string credential;  // of its client, from a named token or a certificate; all other clients share one
  SessionConfig::Purpose purpose = SessionConfig::Purpose::kTrain;
  SessionLimits limits;
  StateStore::Claim state;  // null for a measurement
  std::string who{};        // readable: the client's name, its certificate's, or a common one
  std::string client{};     // the name of its token; empty without one
  std::string peer{};       // "ipv4:127.0.0.1:54321"
  Stopwatch life{};
  std::time_t since = std::time(nullptr);
  double device_seconds = 0;  // CPU time; on other devices, the seconds with traffic
  Usage counted{};            // already counted against its client's quota
  std::string leaving{};      // the reason why it was asked to save and leave
  Stopwatch since_asked{};
  bool condemned = false;                                             // killed, but not ended yet
  bool finished = false;                                              // likewise, as it had nothing left to do
  std::string reason{};                                               // why
  std::shared_ptr<Activity> activity = std::make_shared<Activity>();  // shared with its relays
  std::shared_ptr<SessionReports> reports{};                          // shared with copies of this; null for a measurement
};

inline constexpr double kStartSeconds = 180;  // for a new process, on a machine where many start at once
// Its work so far: steps, samples, bytes, seconds.
nlohmann::json work_of(const RunningSession& session);
// Why the server must end it (time, silence, memory), or empty.
std::string excess_of(const RunningSession& session);

// A client's request for a session.
struct SessionRequest {
  std::string name;        // 32 hex digits
  std::string ticket;      // 64 hex digits
  std::string credential;  // a client certificate; empty for holders of the common token
  std::string client;      // the name of its token; empty without one
  std::string peer;        // "ipv4:127.0.0.1:54321", for the log
  std::string who;         // for the log: the client's name, or whatever is known
  bool may_start = false;  // it opens a command channel
};

// The processes of a server's sessions. Limits on time, silence, memory and usage are enforced here, outside the limited process: a session
// that spins, hangs or grows is killed; one whose client has used up its daily quota is asked to save and leave.
class Sessions {
 public:
  // Called before a session is killed, to tell its client why. Must not call back.
  using OnEnding = std::function<void(const std::string& name, const std::string& reason)>;
  // `metrics` and `audit` outlive it.
  Sessions(const ServeConfig& config, ServerMetrics& metrics, AuditLog& audit, OnEnding on_ending);
  ~Sessions();  // stop()
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;

  // The session of that name, started if it does not run. Throws Refused, or std::runtime_error if it does not start. Call it from a thread
  // that lives as long as the server.
  RunningSession find_or_start(const SessionRequest& request);
  // Starts a process that answers one measuring client, and holds no secret. One that has measured for long makes way. Throws the same
  // errors.
  RunningSession start_measuring(const SessionRequest& request);
  // Removes ended sessions and kills sessions above their limits; returns how many run.
  std::size_t watch();
  // Removes state of ended sessions that is too old or too large. Called by the serving thread, because it may take long.
  void clean() { store_.clean(); }
  // Sets how future sessions dial other servers, and which clients may start them with which limits.
  void renew(const Credentials& credentials);
  void kill(const RunningSession& session, const std::string& reason);
  // Ends a measurement whose client has left.
  void finish(const RunningSession& measurement);
  // For the operator: ends the one session whose name has this prefix, and refuses it as long as this server runs. Returns its name. Throws
  // std::invalid_argument if there is none, or several.
  std::string end(const std::string& begins, const std::string& reason);
  // The running sessions, and today's usage by name: "sessions" and "names" for `epipe serve status`.
  nlohmann::json status();
  // Adds metrics of running sessions, and totals of all sessions.
  void show(monitor::MetricPage& page);
  // Starts no more sessions; running ones are told to save and end.
  void drain();
  // Starts no more sessions; running ones are killed.
  void stop();

 private:
  int running(SessionConfig::Purpose purpose) const;
  int running_of(SessionConfig::Purpose purpose, const std::string& credential) const;
  void check_room(const SessionRequest& request);
  const Client* find_client(const std::string& name) const;
  RunningSession start(SessionConfig config, StateStore::Claim state, const SessionRequest& request);
  void condemn(RunningSession& session, const std::string& reason);
  void count_use(RunningSession& session, double device_seconds);
  void keep_quota(RunningSession& session);
  bool has_ended(RunningSession& session, int options);  // options of wait4()
  int nice_of(const Client* client) const;
  void make_way_for_measuring(const std::string& owner);

  ServeConfig config_;
  ServerMetrics& metrics_;
  AuditLog& audit_;
  const OnEnding on_ending_;
  SocketFolder sockets_;
  StateStore store_;
  std::mutex mutex_;                               // guards the members below
  std::map<std::string, RunningSession> running_;  // by name
  std::set<std::string> expired_;                  // sessions that have used up their time
  std::map<std::string, std::string> ended_;       // sessions ended by the operator, and why
  UsageBook usage_;
  Stopwatch since_counted_;
  bool draining_ = false;
  int measured_ = 0;  // measuring processes so far
};

}  // namespace epipe::serve
