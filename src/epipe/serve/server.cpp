#include "epipe/serve/server.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "epipe/base/clock.h"
#include "epipe/base/file.h"
#include "epipe/base/printable.h"
#include "epipe/monitor/http_server.h"
#include "epipe/serve/admin_socket.h"
#include "epipe/serve/audit_log.h"
#include "epipe/serve/certificate_watch.h"
#include "epipe/serve/child.h"
#include "epipe/serve/client_links.h"
#include "epipe/serve/log.h"
#include "epipe/serve/refusal_log.h"
#include "epipe/serve/sessions.h"
#include "epipe/transport/listener.h"

namespace epipe::serve {
namespace {

using transport::Incoming;
using transport::Refusal;

constexpr std::uint64_t kRoomBytes = 250'000'000;  // threads and buffers of a client's links; measured: 150
constexpr std::uint64_t kRoomOfCore = 8'000'000;   // gRPC has threads for each core
constexpr int kSpareLinks = 8;                     // for measurements, and clients about to be refused
constexpr int kConnectionsOfSession = 4;
constexpr int kSpareConnections = 64;
constexpr int kOtherFiles = 64;  // descriptors not used for connections

std::string value_of(const std::map<std::string, std::string>& about, const std::string& key) {
  const auto found = about.find(key);
  return found == about.end() ? "" : found->second;
}

// Raises the limit on descriptors as far as the system allows; returns it.
int raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1'000'000));
}

void require_room(SessionLimits limits, const std::vector<Client>& clients) {
  for (const Client& client : clients) {
    if (client.memory_bytes == 0) continue;
    limits.memory_bytes = limits.memory_bytes == 0 ? client.memory_bytes : std::min(limits.memory_bytes, client.memory_bytes);
  }
  if (limits.memory_bytes == 0) return;
  const std::uint64_t least = bytes_of_new_session(limits) + kRoomBytes + kRoomOfCore * std::thread::hardware_concurrency();
  if (limits.memory_bytes >= least) return;
  throw std::invalid_argument(
      fmt::format("a session needs {:.2f} GB and its model's weights, gradients and activations, but may hold {:.2f}; "
                  "give --session-memory more, or memory= in --tokens, or --session-threads less",
                  static_cast<double>(least) / 1e9, static_cast<double>(limits.memory_bytes) / 1e9));
}

class Server {
 public:
  explicit Server(const ServeConfig& config)
      : config_(config),
        audit_(config.audit_log),
        refusals_([](const std::string& line) { log("{}", line); },
                  [this](const std::string& who, const std::string& reason, int times) {
                    audit_.write("refused", {{"who", who}, {"reason", reason}, {"times", times}});
                  }),
        certificate_(config.listen, [](const std::string& line) { log("{}", line); }),
        sessions_(config, metrics_, audit_, [this](const std::string& name, const std::string& why) { links_.close(name, why); }),
        links_(metrics_, refusals_, [this](const RunningSession& session, const std::string& why) { sessions_.kill(session, why); },
               [this](const RunningSession& session) { sessions_.finish(session); }),
        listener_(listen_config(), [this](Incoming i) { receive(std::move(i)); }) {
    if (!config.metrics.empty()) serve_metrics();
    admin_ = std::make_unique<AdminSocket>(config.state_dir, [this](const AdminRequest& request) { return answer(request); });
    audit_.write("server_begin", {{"version", config.version}, {"address", config.listen.address}, {"pid", ::getpid()}});
  }
  ~Server() {
    admin_ = nullptr;  // its thread and the HTTP server's threads use the members
    http_ = nullptr;
    listener_.shutdown();
    sessions_.stop();
    refusals_.flush(true);
    audit_.write("server_end", {{"seconds", life_.seconds()}});
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const { return listener_.port(); }
  bool listens() const { return listener_.alive(); }
  bool drains() const { return draining_; }
  bool is_time_up() const { return life_.seconds() >= drain_until_; }

  // Reads certificates and tokens from their files again, and reopens the audit log.
  void renew() {
    audit_.reopen();
    try {
      const Credentials renewed = config_.read_credentials();
      CertificateWatch::require_valid(renewed.listen);
      require_room(config_.limits, renewed.clients);
      listener_.renew(renewed.listen);
      sessions_.renew(renewed);
      log("renewed: clients that connect from now on see the certificate and need the tokens of the files");
      certificate_.set(renewed.listen);
      audit_.write("renewed", nlohmann::json::object());
    } catch (const std::exception& error) {
      log("not renewed, certificate and tokens are as they were: {}", error.what());
      audit_.write("not_renewed", {{"reason", error.what()}});
    }
  }

  // No new sessions; running ones have `seconds` to save and leave. With 0 they are not asked: clients lose the connection, and continue
  // with the next server from their newest checkpoint. If called again, the earlier end counts.
  void drain(double seconds) {
    drain_until_ = std::min(drain_until_.load(), life_.seconds() + seconds);
    if (draining_.exchange(true)) return;
    log("{}", seconds > 0 ? "draining: no new sessions; running ones are saved" : "ending at once; clients go on with the next server");
    audit_.write("drain", {{"seconds", seconds}});
    listener_.set_serving(false);
    if (seconds > 0) sessions_.drain();
  }

  // Enforces the sessions' limits and removes what has ended; returns how many sessions run.
  std::size_t watch() {
    refusals_.flush();
    certificate_.warn();
    links_.clear();
    const std::size_t running = sessions_.watch();
    sessions_.clean();
    return running;
  }

 private:
  // Called by the thread of the admin socket.
  nlohmann::json answer(const AdminRequest& request) {
    switch (request.kind) {
      case AdminRequest::Kind::kDrain: drain(request.seconds.value_or(config_.drain_seconds)); return status();
      case AdminRequest::Kind::kEnd: return {{"ended", sessions_.end(request.session, request.reason)}};
      case AdminRequest::Kind::kStatus: break;
    }
    return status();
  }

  nlohmann::json status() {
    nlohmann::json status = sessions_.status();
    const std::string address = config_.listen.address.substr(0, config_.listen.address.rfind(':'));
    status.update({{"version", config_.version},
                   {"pid", ::getpid()},
                   {"address", fmt::format("{}:{}", address, port())},
                   {"since", utc_text(since_)},
                   {"device", config_.device},
                   {"draining", draining_.load()},
                   {"audit_lines_lost", audit_.lost()},
                   {"limits",
                    {{"sessions", config_.max_sessions},
                     {"session_memory_bytes", config_.limits.memory_bytes},
                     {"session_seconds", config_.limits.seconds},
                     {"idle_seconds", config_.limits.idle_seconds},
                     {"threads", config_.limits.threads},
                     {"in_flight", config_.limits.in_flight}}}});
    if (draining_) status["drain_seconds_left"] = std::max(0.0, drain_until_ - life_.seconds());
    if (const auto end = certificate_.end()) status["certificate_until"] = utc_text(*end);
    return status;
  }

  transport::ListenConfig listen_config() {
    transport::ListenConfig listen = config_.listen;
    const int files = raise_file_limit();
    listen.max_streams = kLinksOfSession * config_.max_sessions + kSpareLinks;
    // A link takes a descriptor here and another one to its session.
    listen.max_connections = std::clamp((files - kOtherFiles) / 3, 8, kConnectionsOfSession * config_.max_sessions + kSpareConnections);
    listen.max_per_address = std::max(4, listen.max_connections * 3 / 4);
    listen.send_timeout = ClientLinks::send_timeout(config_.limits);
    listen.on_refused = [this](const std::string& peer, Refusal why, const std::string& reason) {
      metrics_.refused(why);
      refusals_.add(peer, reason);
    };
    return listen;
  }

  void serve_metrics() {
    (void)metrics_text();  // a build without them fails here
    monitor::HttpConfig http;
    http.address = config_.metrics;
    http.pages["/metrics"] = [this] {
      return monitor::Response{.type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_text()};
    };
    http.pages["/healthz"] = [this] {
      if (draining_) return monitor::Response{.status = 503, .body = "draining\n"};
      return listens() ? monitor::Response{.body = "serving\n"} : monitor::Response{.status = 503, .body = "not listening\n"};
    };
    http_ = std::make_unique<monitor::HttpServer>(std::move(http));
    log("metrics at {}/metrics{}", http_->url(), http_->open_to_others() ? ", for everybody who reaches this machine" : "");
  }

  // Called by threads of the HTTP server.
  std::string metrics_text() {
    monitor::MetricPage page;
    monitor::add_process(page, config_.build);
    sessions_.show(page);
    if (const auto end = certificate_.end()) {
      page.gauge("epipe_certificate_expiry_timestamp_seconds", "when the server's certificate ends, in seconds since 1970",
                 static_cast<double>(*end));
    }
    const char* const links = "clients' links to their sessions: commands, and a data channel for each cut";
    page.gauge("epipe_links", links, links_.opening(), {{"state", "opening"}});
    page.gauge("epipe_links", links, links_.open(), {{"state", "open"}});
    return page.text();
  }

  // Called by the listener's thread, which lives as long as the server. It never waits: other threads open the links.
  void receive(Incoming incoming) {
    const auto asking = std::make_shared<Incoming>(std::move(incoming));  // shared with the thread that opens the link
    try {
      links_.connect(asking, session_for(*asking));
    } catch (const transport::Refused& refused) {
      metrics_.refused(refused.why());
      refusals_.add(asking->token_name().empty() ? asking->peer() : asking->token_name() + "@" + asking->peer(), refused.what());
      asking->refuse(refused.why(), refused.what());
    } catch (const std::exception& error) {
      metrics_.refused(Refusal::kOther);
      log("failed for {}: {}", asking->peer(), error.what());
      asking->refuse(Refusal::kOther, "the server could not start a session");
    }
  }

  RunningSession session_for(const Incoming& incoming) {
    const auto& about = incoming.metadata();
    const std::string channel = value_of(about, "channel");
    const SessionRequest request{value_of(about, "session"), value_of(about, "ticket"), incoming.credential(),
                                 incoming.token_name(),      incoming.peer(),           who_of(incoming),
                                 channel == "commands"};
    if (channel == "measure") return sessions_.start_measuring(request);
    RunningSession session = sessions_.find_or_start(request);
    if (links_.count(session.name) >= kLinksOfSession) {
      throw transport::Refused(Refusal::kFull, fmt::format("a session has at most {} links", kLinksOfSession));
    }
    return session;
  }

  // A readable name, distinct for each kind of client.
  std::string who_of(const Incoming& incoming) const {
    if (!incoming.token_name().empty()) return incoming.token_name();
    if (!incoming.credential().empty()) return "certificate:" + printable(incoming.certificate_name(), 64);
    return config_.listen.insecure && config_.listen.tokens.empty() ? "anybody" : "token";
  }

  const Stopwatch life_{};
  const std::time_t since_ = std::time(nullptr);
  ServeConfig config_;
  AuditLog audit_;
  RefusalLog refusals_;
  ServerMetrics metrics_;
  std::atomic<bool> draining_ = false;
  std::atomic<double> drain_until_ = std::numeric_limits<double>::infinity();  // of life_
  CertificateWatch certificate_;
  Sessions sessions_;
  ClientLinks links_;
  transport::Listener listener_;               // its thread uses all members above
  std::unique_ptr<monitor::HttpServer> http_;  // so do its threads; null without --metrics
  std::unique_ptr<AdminSocket> admin_;         // and its thread
};

}  // namespace

void serve(const ServeConfig& config, const std::atomic<bool>& stop, const std::function<void(int port)>& on_ready) {
  std::signal(SIGPIPE, SIG_IGN);  // if nobody reads the log any more
  std::signal(SIGXFSZ, SIG_IGN);  // for a file at its size limit: the write fails as well
  require_room(config.limits, config.clients);
  Server server(config);
  on_ready(server.port());
  const auto tick = [] { std::this_thread::sleep_for(std::chrono::milliseconds(100)); };
  while (!stop && !server.drains() && server.listens()) {
    if (config.renew != nullptr && config.renew->exchange(false)) server.renew();
    server.watch();
    tick();
  }
  const bool deaf = !server.listens();
  if (stop || deaf) server.drain(config.drain_seconds);
  for (bool told = stop; server.watch() > 0 && !server.is_time_up(); tick()) {
    if (stop && !std::exchange(told, true)) server.drain(config.drain_seconds);
  }
  if (deaf) throw std::runtime_error("the operating system closed the listening socket; start the server again");
}

}  // namespace epipe::serve
