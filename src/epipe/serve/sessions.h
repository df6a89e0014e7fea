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

// What passes between a client and its session, as the server's relays see it.
class Activity {
 public:
  void message(bool from_client, std::size_t bytes) {
    last_ = clock_.seconds();
    bytes_[from_client ? 0 : 1] += bytes;
    if (from_client) heard_ = true;
  }
  // A link, so that the client can be heard. The first counts: who opens others and says nothing gains nothing.
  void opened() {
    if (!was_opened()) opened_ = clock_.seconds();
  }
  // Since a link was opened, or since there is a session and none was.
  double waiting_seconds() const { return clock_.seconds() - opened_; }
  bool was_opened() const { return opened_ > 0; }
  double silent_seconds() const { return clock_.seconds() - last_; }
  bool heard() const { return heard_; }  // the client said something
  std::uint64_t received() const { return bytes_[0]; }
  std::uint64_t sent() const { return bytes_[1]; }

 private:
  const Stopwatch clock_{};
  std::atomic<double> last_ = 0;
  std::atomic<double> opened_ = 0;
  std::atomic<bool> heard_ = false;
  std::array<std::atomic<std::uint64_t>, 2> bytes_{};
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
  std::string who{};        // for people: a name, a certificate's, or what all others are
  std::string client{};     // the name of its token; empty for those without one
  std::string peer{};       // "ipv4:127.0.0.1:54321"
  Stopwatch life{};
  std::time_t since = std::time(nullptr);
  double device_seconds = 0;  // of the CPU; on other devices: in which something passed
  Usage counted{};            // of its client's quota
  std::string leaving{};      // it was asked to save and leave, for this reason
  Stopwatch since_asked{};
  bool condemned = false;                                             // it was killed, and has not ended yet
  std::string reason{};                                               // why
  std::shared_ptr<Activity> activity = std::make_shared<Activity>();  // shared with its relays
  std::shared_ptr<SessionReports> reports{};                          // shared with copies of this; null for a measurement
};

inline constexpr double kStartSeconds = 180;  // of a new process, on a machine where many start at once
// What it has done: steps, samples, bytes, seconds.
nlohmann::json work_of(const RunningSession& session);
// Why the server must end it, or nothing: its time, its silence, its memory.
std::string excess_of(const RunningSession& session);

// Who asks for a session.
struct SessionRequest {
  std::string name;        // 32 hex digits
  std::string ticket;      // 64 hex digits
  std::string credential;  // a client certificate; empty for the holders of the token
  std::string client;      // the name of the token that was shown; empty for those without one
  std::string peer;        // "ipv4:127.0.0.1:54321", for the log
  std::string who;         // for the log: the client's name, or what is known instead
  bool may_start = false;  // it opens a command channel
};

// The processes of a server's sessions. Limits on time, silence, memory and use are kept from here, outside the limited process: a session
// that spins, hangs or grows is killed, one whose client has used up its day is asked to save and leave.
class Sessions {
 public:
  // Told before a session is killed, to tell its client why. Must not call back.
  using OnEnding = std::function<void(const std::string& name, const std::string& reason)>;
  // `metrics` and `audit` outlive it.
  Sessions(const ServeConfig& config, ServerMetrics& metrics, AuditLog& audit, OnEnding on_ending);
  ~Sessions();  // stop()
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;

  // The session of that name, started where it does not run. Throws Refused; std::runtime_error when it does not start. Call it from a
  // thread that lives as long as the server.
  RunningSession find_or_start(const SessionRequest& request);
  // A process that answers one measuring client, and holds no secret. The same errors.
  RunningSession start_measuring(const SessionRequest& request);
  // Forgets the sessions that ended and kills those above their limits; returns how many run.
  std::size_t watch();
  // Removes what ended sessions have kept for too long, or too much of. The serving thread's, because it takes its time.
  void clean() { store_.clean(); }
  // How sessions that begin from now on dial other servers, and who may begin them with which limits.
  void renew(const Credentials& credentials);
  void kill(const RunningSession& session, const std::string& reason);
  // By the operator: the one session whose name begins so is ended, and not taken again as long as this server runs. Returns its name.
  // Throws std::invalid_argument where there is none, or several.
  std::string end(const std::string& begins, const std::string& reason);
  // What runs, and what names have used today: "sessions" and "names" for `epipe serve status`.
  nlohmann::json status();
  // Adds what runs now, and what all sessions have done.
  void show(monitor::MetricPage& page);
  // No session begins any more; those that run are told to save and end.
  void drain();
  // No session begins any more; those that run are killed.
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
  bool has_ended(RunningSession& session, int options);  // of wait4()
  int nice_of(const Client* client) const;

  ServeConfig config_;
  ServerMetrics& metrics_;
  AuditLog& audit_;
  const OnEnding on_ending_;
  SocketFolder sockets_;
  StateStore store_;
  std::mutex mutex_;                               // guards what follows
  std::map<std::string, RunningSession> running_;  // by name
  std::set<std::string> expired_;                  // sessions that have had their time
  std::map<std::string, std::string> ended_;       // sessions that the operator has ended, and why
  UsageBook usage_;
  Stopwatch since_counted_;
  bool draining_ = false;
  int measured_ = 0;  // measuring processes so far
};

}  // namespace epipe::serve
