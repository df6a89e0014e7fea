#include "epipe/serve/sessions.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>

#include "epipe/base/file.h"
#include "epipe/base/secret.h"
#include "epipe/serve/child.h"
#include "epipe/serve/log.h"
#include "epipe/transport/refused.h"

namespace epipe::serve {
namespace {

using Purpose = SessionConfig::Purpose;
using transport::Refusal;
using transport::Refused;

constexpr double kFirstCommandSeconds = 20;        // a session whose client sends nothing loses its place
constexpr double kGraceSeconds = 5;                // for a session to end itself, and say why, before it is killed
constexpr std::uint64_t kStackBytes = 64'000'000;  // the kernel's limit does not count it
constexpr double kCountSeconds = 1;                // between two counts of the sessions' usage
constexpr double kLeaveSeconds = 60;               // to save and leave
constexpr int kMeasuring = 2;                      // processes that answer measuring clients, one per credential
constexpr double kMeasuringSeconds = 600;
constexpr double kMeasuringTurn = 20;  // a plan takes 5, `epipe bench link` 10; then others that ask come first
constexpr double kMeasuringIdleSeconds = 30;
constexpr std::uint64_t kMeasuringBytes = 1'500'000'000;  // LibTorch is loaded, though not used

std::string shown(const RunningSession& session) {
  return session.purpose == Purpose::kTrain ? fmt::format("session {:.8}", session.name) : session.name;
}

bool out_of_time(const RunningSession& session) { return session.limits.seconds > 0 && session.life.seconds() > session.limits.seconds; }

// The key by which a client's sessions are counted. No certificate looks like "client NAME".
std::string owner_of(const SessionRequest& request) { return request.client.empty() ? request.credential : "client " + request.client; }

SessionLimits limits_for(SessionLimits limits, const Client* client) {
  if (client == nullptr || client->memory_bytes == 0) return limits;
  limits.memory_bytes = limits.memory_bytes == 0 ? client->memory_bytes : std::min(limits.memory_bytes, client->memory_bytes);
  return limits;
}

double seconds_of(const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec); }

// Not one that was killed and is about to be gone.
bool counts(const RunningSession& session, Purpose purpose) {
  return session.purpose == purpose && (purpose == Purpose::kTrain || !(session.condemned || session.finished));
}

const char* how_of(SessionEnd how) { return how == SessionEnd::kLeft ? "left" : how == SessionEnd::kKilled ? "killed" : "failed"; }

}  // namespace

std::string excess_of(const RunningSession& session) {
  const SessionLimits& limits = session.limits;
  const Activity& activity = *session.activity;
  if (out_of_time(session)) return fmt::format("it has used up its {} s", limits.seconds);
  if (!activity.heard() && activity.waiting_seconds() > (activity.was_opened() ? 0 : kStartSeconds) + kFirstCommandSeconds) {
    return fmt::format("its client said nothing for {} s", kFirstCommandSeconds);
  }
  // Within a step there may be no traffic for `timeout`; beyond that the session is idle, or does not answer.
  const double silence = std::max(limits.idle_seconds, limits.timeout) + kGraceSeconds;
  if (activity.silent_seconds() > silence) return fmt::format("nothing passed between it and its client for {:.0f} s", silence);
  if (limits.memory_bytes == 0) return {};
  const std::uint64_t held = held_bytes(session.pid);
  if (held <= limits.memory_bytes + kStackBytes) return {};
  return fmt::format("it holds {:.2f} GB, and may hold {:.2f}", static_cast<double>(held) / 1e9,
                     static_cast<double>(limits.memory_bytes) / 1e9);
}

Sessions::Sessions(const ServeConfig& config, ServerMetrics& metrics, AuditLog& audit, OnEnding on_ending)
    : config_(config),
      metrics_(metrics),
      audit_(audit),
      on_ending_(std::move(on_ending)),
      store_(config.state_dir, config.state, config.max_sessions),
      usage_(config.state_dir + "/usage.json") {}

Sessions::~Sessions() { stop(); }

void Sessions::stop() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
  for (auto& [name, session] : running_) {
    ::kill(session.pid, SIGKILL);
    session.condemned = true;
    if (session.reason.empty()) session.reason = "the server ends";
  }
  for (auto& [name, session] : running_) has_ended(session, 0);
  running_.clear();
  usage_.save(true);
}

RunningSession Sessions::find_or_start(const SessionRequest& request) {
  watch();
  if (!is_session_name(request.name) || !is_ticket(request.ticket)) throw Refused(Refusal::kNotFound, "a session is named by hex digits");
  const std::lock_guard lock(mutex_);
  if (const auto ended = ended_.find(request.name); ended != ended_.end()) throw Refused(Refusal::kEnded, ended->second);
  if (const auto found = running_.find(request.name); found != running_.end()) {
    if (!equal_secret(found->second.ticket, request.ticket)) throw Refused(Refusal::kUnauthenticated, "not your session");
    if (request.may_start) metrics_.reconnected();
    return found->second;
  }
  check_room(request);
  const bool has_state = store_.holds(request.name);
  const auto state = store_.claim(request.name, request.ticket);
  if (has_state) metrics_.reconnected();
  SessionConfig session;
  session.state_dir = *state;
  session.state_bytes = store_.session_bytes();
  session.reuse_bytes = config_.state.reuse_bytes;
  session.name = request.name;
  session.ticket = request.ticket;
  const Client* const client = find_client(request.client);
  session.limits = limits_for(config_.limits, client);
  session.nice = nice_of(client);
  session.device = config_.device;
  session.scripts = config_.scripts;
  session.peers = config_.peers;
  session.dial = config_.dial;
  return start(std::move(session), state, request);
}

void Sessions::check_room(const SessionRequest& request) {
  if (!request.may_start) throw Refused(Refusal::kNotFound, "no such session");
  if (expired_.contains(request.name)) {
    throw Refused(Refusal::kOther, fmt::format("the session has used up its {} seconds on this server", config_.limits.seconds));
  }
  if (draining_) throw Refused(Refusal::kFull, "the server is about to end and takes no new sessions");
  if (running(Purpose::kTrain) >= config_.max_sessions) {
    throw Refused(Refusal::kFull, fmt::format("the server already has {} sessions, its limit; try again later", config_.max_sessions));
  }
  const std::string owner = owner_of(request);
  const Client* const client = find_client(request.client);
  const int share = client != nullptr && client->sessions ? *client->sessions : config_.share_of(owner);
  if (running_of(Purpose::kTrain, owner) >= share) {
    throw Refused(Refusal::kFull, fmt::format("your credential already has {} sessions on this server, its limit; try again later", share));
  }
  if (client == nullptr) return;
  const std::string spent = quota_spent(*client, usage_.today(client->name), usage_.next_day());
  if (!spent.empty()) throw Refused(Refusal::kFull, spent);
}

// The kernel's scheduler gives each nice level 1.25 times the CPU of the next one. Only root may go below the server's own level, so the
// largest weight gets that level.
int Sessions::nice_of(const Client* client) const {
  int most = 1;
  for (const Client& other : config_.clients) most = std::max(most, other.weight);
  const int weight = client == nullptr ? 1 : std::max(1, client->weight);
  return std::min(19, static_cast<int>(std::lround(std::log(static_cast<double>(most) / weight) / std::log(1.25))));
}

const Client* Sessions::find_client(const std::string& name) const {
  const auto is = [&](const Client& client) { return client.name == name; };
  const auto found = std::find_if(config_.clients.begin(), config_.clients.end(), is);
  return found == config_.clients.end() ? nullptr : &*found;
}

RunningSession Sessions::start_measuring(const SessionRequest& request) {
  watch();
  const std::lock_guard lock(mutex_);
  if (draining_) throw Refused(Refusal::kFull, "the server is about to end");
  make_way_for_measuring(owner_of(request));
  if (running(Purpose::kMeasureLink) >= kMeasuring || running_of(Purpose::kMeasureLink, owner_of(request)) > 0) {
    throw Refused(Refusal::kFull, "another client is measuring already; try again later");
  }
  SessionConfig session;
  session.purpose = Purpose::kMeasureLink;
  session.name = fmt::format("measurement-{}", ++measured_);
  session.limits.memory_bytes = kMeasuringBytes;
  session.limits.seconds = kMeasuringSeconds;
  session.limits.idle_seconds = kMeasuringIdleSeconds;
  session.limits.timeout = kMeasuringIdleSeconds;
  return start(std::move(session), nullptr, request);
}

// Of the owner's own, as only one of those runs; otherwise the oldest.
void Sessions::make_way_for_measuring(const std::string& owner) {
  RunningSession* longest = nullptr;
  const bool own = running_of(Purpose::kMeasureLink, owner) > 0;
  if (!own && running(Purpose::kMeasureLink) < kMeasuring) return;
  for (auto& [name, session] : running_) {
    if (!counts(session, Purpose::kMeasureLink) || (own && session.credential != owner)) continue;
    if (longest == nullptr || session.life.seconds() > longest->life.seconds()) longest = &session;
  }
  if (longest == nullptr || longest->life.seconds() < kMeasuringTurn) return;
  condemn(*longest, fmt::format("it has measured for {:.0f} s, and another client asks", longest->life.seconds()));
}

RunningSession Sessions::start(SessionConfig config, StateStore::Claim state, const SessionRequest& request) {
  const std::string path = sockets_.path() + "/" + config.name;
  (void)remove_tree(path);  // left by an earlier process of the session
  config.socket = "unix:" + path;
  const auto reports = config.purpose == Purpose::kTrain ? std::make_shared<SessionReports>() : nullptr;  // shared with copies below
  const pid_t pid = start_session(config, reports ? reports->session_end() : -1);
  if (reports) reports->close_session_end();
  RunningSession session{pid,           config.name,     config.ticket, config.socket, owner_of(request), config.purpose,
                         config.limits, std::move(state)};
  session.who = request.who;
  session.client = request.client;
  session.peer = request.peer;
  session.reports = reports;
  running_[session.name] = session;
  if (reports) metrics_.started();
  log("{} for {} in process {}", shown(session), request.client.empty() ? request.peer : request.client + "@" + request.peer, session.pid);
  audit_.write("session_begin", {{"session", session.name}, {"who", session.who}, {"peer", session.peer}});
  return session;
}

void Sessions::condemn(RunningSession& session, const std::string& reason) {
  log("{} is ended: {}", shown(session), reason);
  session.condemned = true;
  session.reason = reason;
  if (on_ending_) on_ending_(session.name, "the server ended the session: " + reason);
  ::kill(session.pid, SIGKILL);
}

std::size_t Sessions::watch() {
  const std::lock_guard lock(mutex_);
  const bool count = since_counted_.seconds() > kCountSeconds;
  for (auto& [name, session] : running_) {
    if (session.reports) session.reports->read(session.life.seconds());
    if (session.condemned) continue;
    if (count) {
      const bool on_cpu = config_.device == "cpu";
      const double busy = session.activity->silent_seconds() < kCountSeconds ? since_counted_.seconds() : 0;
      count_use(session, on_cpu ? cpu_seconds(session.pid) : session.device_seconds + busy);
      keep_quota(session);
    }
    const std::string reason = excess_of(session);
    if (reason.empty()) continue;
    if (out_of_time(session)) expired_.insert(name);
    condemn(session, reason);
  }
  if (count) {
    since_counted_ = {};
    usage_.save();
  }
  for (auto entry = running_.begin(); entry != running_.end();) {
    const auto next = std::next(entry);
    if (has_ended(entry->second, WNOHANG)) running_.erase(entry);
    entry = next;
  }
  return running_.size();
}

// `device_seconds`: since the session began; 0 for a process that is gone.
void Sessions::count_use(RunningSession& session, double device_seconds) {
  session.device_seconds = std::max(session.device_seconds, device_seconds);
  if (session.client.empty()) return;
  const Usage now{session.activity->received() + session.activity->sent(), session.device_seconds};
  usage_.add(session.client, {now.bytes - session.counted.bytes, now.seconds - session.counted.seconds});
  session.counted = now;
}

void Sessions::keep_quota(RunningSession& session) {
  if (!session.leaving.empty()) {
    if (session.since_asked.seconds() > kLeaveSeconds) condemn(session, session.leaving);
    return;
  }
  const Client* const client = find_client(session.client);
  if (client == nullptr || session.purpose != Purpose::kTrain) return;
  session.leaving = quota_spent(*client, usage_.today(client->name), usage_.next_day());
  if (session.leaving.empty()) return;
  log("{} is asked to save and leave: {}", shown(session), session.leaving);
  audit_.write("session_asked_to_leave", {{"session", session.name}, {"who", session.who}, {"reason", session.leaving}});
  session.since_asked = {};
  ::kill(session.pid, SIGTERM);
}

bool Sessions::has_ended(RunningSession& session, int options) {
  int status = 0;
  rusage used{};
  if (::wait4(session.pid, &status, options, &used) == 0) return false;
  if (config_.device == "cpu") count_use(session, seconds_of(used.ru_utime) + seconds_of(used.ru_stime));
  const bool killed = WIFSIGNALED(status) && !session.finished;
  log("{} {}", shown(session), killed ? fmt::format("was ended by signal {}", WTERMSIG(status)) : "has ended");
  if (session.reports) session.reports->read(session.life.seconds());
  const bool failed = !session.finished && (WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
  const SessionEnd how = session.condemned ? SessionEnd::kKilled : failed ? SessionEnd::kFailed : SessionEnd::kLeft;
  if (session.reports) metrics_.ended(how, session.reports->totals(), session.reports->rejected());
  nlohmann::json fields = work_of(session);
  fields.update({{"session", session.name}, {"who", session.who}, {"how", how_of(how)}});
  if (!session.reason.empty()) fields["reason"] = session.reason;
  audit_.write("session_end", fields);
  return true;
}

std::string Sessions::end(const std::string& begins, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  std::vector<RunningSession*> found;
  for (auto& [name, session] : running_) {
    if (name.starts_with(begins)) found.push_back(&session);
  }
  if (found.empty())
    throw std::invalid_argument(fmt::format("no session {} runs here; \"epipe serve status\" lists those that do", begins));
  if (found.size() > 1) throw std::invalid_argument(fmt::format("{} sessions begin with {}; give more digits", found.size(), begins));
  RunningSession& session = *found.front();
  const std::string why = reason.empty() ? "by its operator" : "by its operator: " + reason;
  ended_[session.name] = "the session was ended " + why;
  audit_.write("session_ended_by_operator", {{"session", session.name}, {"who", session.who}, {"reason", reason}});
  if (!session.condemned) condemn(session, why);
  return session.name;
}

void Sessions::show(monitor::MetricPage& page) {
  const std::lock_guard lock(mutex_);
  session::StepTotals totals;
  std::uint64_t rejected = 0;
  std::uint64_t held = 0;
  std::time_t saved = 0;
  for (const auto& [name, session] : running_) {
    if (!session.reports) continue;
    const std::time_t at = session.reports->saved_at();
    if (at > 0 && (saved == 0 || at < saved)) saved = at;
    totals.add(session.reports->totals());
    rejected += session.reports->rejected();
    held += held_bytes(session.pid);
  }
  page.gauge("epipe_sessions", "sessions that run", running(Purpose::kTrain));
  page.gauge("epipe_sessions_limit", "sessions that may run at once (--max-sessions)", config_.max_sessions);
  page.gauge("epipe_measurements", "clients that measure the link (epipe bench link)", running(Purpose::kMeasureLink));
  page.gauge("epipe_session_memory_bytes", "data and stack of the sessions that run, together", static_cast<double>(held));
  page.gauge(
      "epipe_checkpoint_timestamp_seconds",
      "of the sessions that run, the one that has not saved for the longest: its newest checkpoint, in seconds since 1970; 0: none has",
      static_cast<double>(saved));
  page.gauge("epipe_draining", "1 when the server takes no new sessions and is about to end", draining_ ? 1 : 0);
  metrics_.show(page, totals, rejected);
}

void Sessions::renew(const Credentials& credentials) {
  const std::lock_guard lock(mutex_);
  config_.dial = credentials.dial;
  config_.clients = credentials.clients;
}

void Sessions::kill(const RunningSession& session, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(session.name);
  if (found == running_.end() || found->second.pid != session.pid) return;  // it has ended, and its process id may be reused
  if (!found->second.condemned) condemn(found->second, reason);
}

void Sessions::finish(const RunningSession& measurement) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(measurement.name);
  if (found == running_.end() || found->second.pid != measurement.pid || found->second.condemned) return;
  found->second.finished = true;
  ::kill(measurement.pid, SIGKILL);
}

void Sessions::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
  for (const auto& [name, session] : running_) ::kill(session.pid, SIGTERM);
}

int Sessions::running(Purpose purpose) const {
  const auto is = [purpose](const auto& entry) { return counts(entry.second, purpose); };
  return static_cast<int>(std::count_if(running_.begin(), running_.end(), is));
}

int Sessions::running_of(Purpose purpose, const std::string& credential) const {
  const auto is = [&](const auto& entry) { return counts(entry.second, purpose) && entry.second.credential == credential; };
  return static_cast<int>(std::count_if(running_.begin(), running_.end(), is));
}

}  // namespace epipe::serve
