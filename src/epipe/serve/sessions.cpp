#include "epipe/serve/sessions.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>

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

constexpr double kFirstCommandSeconds = 20;        // a session whose client says nothing is not worth its place
constexpr double kGraceSeconds = 5;                // a session may end itself, and say why, before it is killed
constexpr std::uint64_t kStackBytes = 64'000'000;  // the kernel's limit does not count it
constexpr int kMeasuring = 2;                      // processes that answer measuring clients, one for each credential
constexpr double kMeasuringSeconds = 600;
constexpr double kMeasuringIdleSeconds = 30;
constexpr std::uint64_t kMeasuringBytes = 1'500'000'000;  // LibTorch is loaded, though not used

std::string shown(const RunningSession& session) {
  return session.purpose == Purpose::kTrain ? fmt::format("session {:.8}", session.name) : session.name;
}

bool out_of_time(const RunningSession& session) { return session.limits.seconds > 0 && session.life.seconds() > session.limits.seconds; }

// What the sessions of one client are counted by. No certificate looks like it.
std::string owner_of(const SessionRequest& request) { return request.client.empty() ? request.credential : "client " + request.client; }

SessionLimits limits_for(SessionLimits limits, const Client* client) {
  if (client == nullptr || client->memory_bytes == 0) return limits;
  limits.memory_bytes = limits.memory_bytes == 0 ? client->memory_bytes : std::min(limits.memory_bytes, client->memory_bytes);
  return limits;
}

void end(RunningSession& session, const std::string& reason) {
  log("{} is ended: {}", shown(session), reason);
  session.condemned = true;
  ::kill(session.pid, SIGKILL);
}

}  // namespace

std::string excess_of(const RunningSession& session) {
  const SessionLimits& limits = session.limits;
  const Activity& activity = *session.activity;
  if (out_of_time(session)) return fmt::format("it has had its {} s", limits.seconds);
  if (!activity.heard() && session.life.seconds() > kFirstCommandSeconds) {
    return fmt::format("its client said nothing for {} s", kFirstCommandSeconds);
  }
  // Within a step nothing may pass for `timeout`; otherwise the session is idle, or does not answer.
  const double silence = std::max(limits.idle_seconds, limits.timeout) + kGraceSeconds;
  if (activity.silent_seconds() > silence) return fmt::format("nothing passed between it and its client for {:.0f} s", silence);
  if (limits.memory_bytes == 0) return {};
  const std::uint64_t held = held_bytes(session.pid);
  if (held <= limits.memory_bytes + kStackBytes) return {};
  return fmt::format("it holds {:.2f} GB, and may hold {:.2f}", static_cast<double>(held) / 1e9,
                     static_cast<double>(limits.memory_bytes) / 1e9);
}

Sessions::Sessions(const ServeConfig& config, ServerMetrics& metrics)
    : config_(config), metrics_(metrics), store_(config.state_dir, config.state, config.max_sessions) {}

Sessions::~Sessions() {
  for (const auto& [name, session] : running_) ::kill(session.pid, SIGKILL);
  for (const auto& [name, session] : running_) ::waitpid(session.pid, nullptr, 0);
}

RunningSession Sessions::find_or_start(const SessionRequest& request) {
  watch();
  if (!is_session_name(request.name) || !is_ticket(request.ticket)) throw Refused(Refusal::kNotFound, "a session is named by hex digits");
  const std::lock_guard lock(mutex_);
  if (const auto found = running_.find(request.name); found != running_.end()) {
    if (!equal_secret(found->second.ticket, request.ticket)) throw Refused(Refusal::kUnauthenticated, "not your session");
    return found->second;
  }
  check_room(request);
  const auto state = store_.claim(request.name, request.ticket);
  SessionConfig session;
  session.state_dir = *state;
  session.state_bytes = store_.session_bytes();
  session.reuse_bytes = config_.state.reuse_bytes;
  session.name = request.name;
  session.ticket = request.ticket;
  session.limits = limits_for(config_.limits, find_client(request.client));
  session.device = config_.device;
  session.scripts = config_.scripts;
  session.peers = config_.peers;
  session.dial = config_.dial;
  return start(std::move(session), state, owner_of(request), request.client.empty() ? request.peer : request.client + "@" + request.peer);
}

void Sessions::check_room(const SessionRequest& request) const {
  if (!request.may_start) throw Refused(Refusal::kNotFound, "no such session");
  if (expired_.contains(request.name)) {
    throw Refused(Refusal::kOther, fmt::format("the session has had its {} seconds on this server", config_.limits.seconds));
  }
  if (draining_) throw Refused(Refusal::kFull, "the server is about to end and takes no new sessions");
  if (running(Purpose::kTrain) >= config_.max_sessions) {
    throw Refused(Refusal::kFull, fmt::format("the server has its {} sessions, try again later", config_.max_sessions));
  }
  const std::string owner = owner_of(request);
  const Client* const client = find_client(request.client);
  const int share = client != nullptr && client->sessions ? *client->sessions : config_.share_of(owner);
  if (running_of(Purpose::kTrain, owner) >= share) {
    throw Refused(Refusal::kFull, fmt::format("your credential has its {} sessions on this server, try again later", share));
  }
}

const Client* Sessions::find_client(const std::string& name) const {
  const auto is = [&](const Client& client) { return client.name == name; };
  const auto found = std::find_if(config_.clients.begin(), config_.clients.end(), is);
  return found == config_.clients.end() ? nullptr : &*found;
}

RunningSession Sessions::start_measuring(const std::string& credential, const std::string& peer) {
  watch();
  const std::lock_guard lock(mutex_);
  if (draining_) throw Refused(Refusal::kFull, "the server is about to end");
  if (running(Purpose::kMeasureLink) >= kMeasuring || running_of(Purpose::kMeasureLink, credential) > 0) {
    throw Refused(Refusal::kFull, "somebody measures already, try again later");
  }
  SessionConfig session;
  session.purpose = Purpose::kMeasureLink;
  session.name = fmt::format("measurement-{}", ++measured_);
  session.limits.memory_bytes = kMeasuringBytes;
  session.limits.seconds = kMeasuringSeconds;
  session.limits.idle_seconds = kMeasuringIdleSeconds;
  session.limits.timeout = kMeasuringIdleSeconds;
  return start(std::move(session), nullptr, credential, peer);
}

RunningSession Sessions::start(SessionConfig config, StateStore::Claim state, const std::string& credential, const std::string& peer) {
  const std::string path = sockets_.path() + "/" + config.name;
  (void)remove_tree(path);  // of an earlier process of the session
  config.socket = "unix:" + path;
  const auto reports = config.purpose == Purpose::kTrain ? std::make_shared<SessionReports>() : nullptr;  // shared with copies below
  const pid_t pid = start_session(config, reports ? reports->session_end() : -1);
  if (reports) reports->close_session_end();
  RunningSession session{pid, config.name, config.ticket, config.socket, credential, config.purpose, config.limits, std::move(state)};
  session.reports = reports;
  running_[session.name] = session;
  if (reports) metrics_.started();
  log("{} for {} in process {}", shown(session), peer, session.pid);
  return session;
}

std::size_t Sessions::watch() {
  const std::lock_guard lock(mutex_);
  for (auto& [name, session] : running_) {
    if (session.reports) session.reports->read(session.life.seconds());
    const std::string reason = session.condemned ? "" : excess_of(session);
    if (reason.empty()) continue;
    if (out_of_time(session)) expired_.insert(name);
    end(session, reason);
  }
  std::erase_if(running_, [this](const auto& entry) { return has_ended(entry.second); });
  return running_.size();
}

bool Sessions::has_ended(const RunningSession& session) {
  int status = 0;
  if (::waitpid(session.pid, &status, WNOHANG) == 0) return false;
  log("{} {}", shown(session), WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status)) : "has ended");
  if (!session.reports) return true;
  session.reports->read(session.life.seconds());
  const bool failed = WIFSIGNALED(status) || WEXITSTATUS(status) != 0;
  const SessionEnd how = session.condemned ? SessionEnd::kKilled : failed ? SessionEnd::kFailed : SessionEnd::kLeft;
  metrics_.ended(how, session.reports->totals(), session.reports->rejected());
  return true;
}

void Sessions::show(monitor::MetricPage& page) {
  const std::lock_guard lock(mutex_);
  session::StepTotals totals;
  std::uint64_t rejected = 0;
  std::uint64_t held = 0;
  for (const auto& [name, session] : running_) {
    if (!session.reports) continue;
    totals.add(session.reports->totals());
    rejected += session.reports->rejected();
    held += held_bytes(session.pid);
  }
  page.gauge("epipe_sessions", "sessions that run", running(Purpose::kTrain));
  page.gauge("epipe_sessions_limit", "sessions that may run at once (--max-sessions)", config_.max_sessions);
  page.gauge("epipe_measurements", "clients that measure the link (epipe bench link)", running(Purpose::kMeasureLink));
  page.gauge("epipe_session_memory_bytes", "data and stack of the sessions that run, together", static_cast<double>(held));
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
  if (found == running_.end() || found->second.pid != session.pid) return;  // it has ended by itself, its process id may be another's
  if (!found->second.condemned) end(found->second, reason);
}

void Sessions::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
  for (const auto& [name, session] : running_) ::kill(session.pid, SIGTERM);
}

int Sessions::running(Purpose purpose) const {
  const auto is = [purpose](const auto& entry) { return entry.second.purpose == purpose; };
  return static_cast<int>(std::count_if(running_.begin(), running_.end(), is));
}

int Sessions::running_of(Purpose purpose, const std::string& credential) const {
  const auto is = [&](const auto& entry) { return entry.second.purpose == purpose && entry.second.credential == credential; };
  return static_cast<int>(std::count_if(running_.begin(), running_.end(), is));
}

}  // namespace epipe::serve
