#include "epipe/serve/server.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "epipe/base/clock.h"
#include "epipe/base/file.h"
#include "epipe/monitor/http_server.h"
#include "epipe/serve/certificate_watch.h"
#include "epipe/serve/child.h"
#include "epipe/serve/log.h"
#include "epipe/serve/refusal_log.h"
#include "epipe/serve/sessions.h"
#include "epipe/transport/connector.h"
#include "epipe/transport/listener.h"
#include "epipe/transport/relay.h"

namespace epipe::serve {
namespace {

using transport::Incoming;
using transport::Refusal;

constexpr double kStartSeconds = 60;                              // of a new process, on a busy machine
constexpr transport::Timeout kAnswer = std::chrono::seconds(10);  // of a session that runs
constexpr std::uint64_t kRoomBytes = 250'000'000;                 // threads and buffers of a client's links; measured: 150
constexpr std::uint64_t kRoomOfCore = 8'000'000;                  // gRPC has threads for each
constexpr int kLinksOfSession = 32;                               // commands, and a data channel for each cut
constexpr int kSpareLinks = 8;                                    // measurements, and those who are about to be refused
constexpr int kConnectionsOfSession = 4;
constexpr int kSpareConnections = 64;
constexpr int kOtherFiles = 64;  // descriptors that are no connection's

std::string value_of(const std::map<std::string, std::string>& about, const std::string& key) {
  const auto found = about.find(key);
  return found == about.end() ? "" : found->second;
}

std::string socket_path(const std::string& address) { return address.substr(std::string_view("unix:").size()); }

// As many descriptors as the system grants this process; returns how many.
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

// A thread that opens the inner link of a client, and whether it is done.
struct Connecting {
  std::string session;
  std::thread thread;
  std::shared_ptr<std::atomic<bool>> done = std::make_shared<std::atomic<bool>>(false);  // shared with the thread
};

struct Connected {
  std::string session;
  std::unique_ptr<transport::Relay> relay;
};

class Server {
 public:
  explicit Server(const ServeConfig& config)
      : config_(config),
        refusals_([](const std::string& line) { log("{}", line); }),
        certificate_(config.listen, [](const std::string& line) { log("{}", line); }),
        sessions_(config, metrics_),
        listener_(listen_config(), [this](Incoming i) { receive(std::move(i)); }) {
    if (!config.metrics.empty()) serve_metrics();
  }
  ~Server() {
    http_ = nullptr;  // its threads use the rest
    listener_.shutdown();
    for (auto& connecting : connecting_) connecting.thread.join();
    refusals_.flush(true);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const { return listener_.port(); }
  bool listens() const { return listener_.alive(); }

  // Certificates and tokens as their files have them now.
  void renew() {
    try {
      const Credentials renewed = config_.read_credentials();
      CertificateWatch::require_valid(renewed.listen);
      require_room(config_.limits, renewed.clients);
      listener_.renew(renewed.listen);
      sessions_.renew(renewed);
      log("renewed: clients that connect from now on see the certificate and need the tokens of the files");
      certificate_.set(renewed.listen);
    } catch (const std::exception& error) {
      log("not renewed, certificate and tokens are as they were: {}", error.what());
    }
  }

  void drain() {
    draining_ = true;
    listener_.set_serving(false);
    sessions_.drain();
  }

  // Keeps the sessions' limits and clears away what has ended; returns how many sessions run.
  std::size_t watch() {
    refusals_.flush();
    certificate_.warn();
    clear();
    const std::size_t running = sessions_.watch();
    sessions_.clean();
    return running;
  }

 private:
  transport::ListenConfig listen_config() {
    transport::ListenConfig listen = config_.listen;
    const int files = raise_file_limit();
    listen.max_streams = kLinksOfSession * config_.max_sessions + kSpareLinks;
    // A link takes a descriptor here and another one to its session.
    listen.max_connections = std::clamp((files - kOtherFiles) / 3, 8, kConnectionsOfSession * config_.max_sessions + kSpareConnections);
    listen.max_per_address = std::max(4, listen.max_connections * 3 / 4);
    listen.send_timeout = send_timeout(config_.limits);
    listen.on_refused = [this](const std::string& peer, Refusal why, const std::string& reason) {
      metrics_.refused(why);
      refusals_.add(peer, reason);
    };
    return listen;
  }

  void serve_metrics() {
    (void)metrics_text();  // a build that cannot write them says so now
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

  // By threads of the HTTP server.
  std::string metrics_text() {
    monitor::MetricPage page;
    monitor::add_process(page, config_.version);
    sessions_.show(page);
    if (const auto end = certificate_.end()) {
      page.gauge("epipe_certificate_expiry_timestamp_seconds", "when the server's certificate ends, in seconds since 1970",
                 static_cast<double>(*end));
    }
    const std::lock_guard lock(mutex_);
    const char* const links = "clients' links to their sessions: commands, and a data channel for each cut";
    page.gauge("epipe_links", links, static_cast<double>(connecting_.size()), {{"state", "opening"}});
    page.gauge("epipe_links", links, static_cast<double>(connected_.size()), {{"state", "open"}});
    return page.text();
  }

  // By the listener's thread, which lives as long as the server. It waits for nobody: links are opened by threads of their own.
  void receive(Incoming incoming) {
    const auto asking = std::make_shared<Incoming>(std::move(incoming));  // shared with the thread that opens the link
    try {
      connect(asking, session_for(*asking));
    } catch (const transport::Refused& refused) {
      metrics_.refused(refused.why());
      refusals_.add(asking->peer(), refused.what());
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
    const std::string owner = incoming.token_name().empty() ? incoming.credential() : "client " + incoming.token_name();
    if (channel == "measure") return sessions_.start_measuring(owner, incoming.peer());
    RunningSession session = sessions_.find_or_start(
        {value_of(about, "session"), value_of(about, "ticket"), incoming.credential(), incoming.token_name(), incoming.peer(),
         channel == "commands"});
    if (links_of(session.name) >= kLinksOfSession) {
      throw transport::Refused(Refusal::kFull, fmt::format("a session has at most {} links", kLinksOfSession));
    }
    return session;
  }

  int links_of(const std::string& session) {
    const std::lock_guard lock(mutex_);
    const auto of_session = [&](const auto& entry) { return entry.session == session; };
    return static_cast<int>(std::count_if(connecting_.begin(), connecting_.end(), of_session) +
                            std::count_if(connected_.begin(), connected_.end(), of_session));
  }

  void connect(const std::shared_ptr<Incoming>& asking, const RunningSession& session) {
    Connecting connecting;
    connecting.session = session.name;
    const std::lock_guard lock(mutex_);
    connecting.thread = std::thread([this, session, done = connecting.done, asking] {
      open(*asking, session);
      *done = true;
    });
    connecting_.push_back(std::move(connecting));
  }

  void open(Incoming& incoming, const RunningSession& session) {
    try {
      auto inner = open_inner(session, incoming.metadata());
      const auto on_piece = [this, activity = session.activity](bool from_client, std::size_t bytes) {
        activity->message(from_client);
        metrics_.relayed(from_client, bytes);
      };
      auto relay =
          std::make_unique<transport::Relay>(incoming.accept(), std::move(inner), transport::Relay::Observer{.on_piece = on_piece});
      const std::lock_guard lock(mutex_);
      connected_.push_back({session.name, std::move(relay)});
    } catch (const transport::Refused& refused) {
      metrics_.refused(refused.why());
      refusals_.add(incoming.peer(), refused.what());
      incoming.refuse(refused.why(), "the session: " + std::string(refused.what()));
    } catch (const std::exception& error) {
      sessions_.kill(session, error.what());
      incoming.refuse(Refusal::kOther, "the session did not answer and was ended; connect again");
    }
  }

  // A session that was just started takes a moment to listen, and another between its socket's name and the first connection. One that runs
  // answers, or it hangs.
  std::unique_ptr<transport::Link> open_inner(const RunningSession& session, const std::map<std::string, std::string>& about) {
    transport::ConnectConfig dial;
    dial.address = session.socket;
    dial.insecure = true;
    dial.connect_timeout = kAnswer;
    dial.send_timeout = send_timeout(session.limits);
    const std::string path = socket_path(session.socket);
    for (const Stopwatch watch;; std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
      const bool listens = ::access(path.c_str(), F_OK) == 0;
      try {
        if (listens) return transport::Connector(dial).open(about);
      } catch (const transport::Refused&) {
        throw;
      } catch (const transport::ConnectionLost&) {
        if (watch.seconds() > std::chrono::duration<double>(kAnswer).count()) {
          throw std::runtime_error(fmt::format("it does not take a link within {} s", kAnswer.count() / 1000));
        }
      }
      if (!listens && watch.seconds() > kStartSeconds) throw std::runtime_error("it did not start in time");
      if (::kill(session.pid, 0) != 0) throw std::runtime_error("its process is gone");
    }
  }

  static transport::Timeout send_timeout(const SessionLimits& limits) {
    return transport::Timeout(static_cast<std::int64_t>(1000 * std::max(limits.idle_seconds, limits.timeout)));
  }

  // Relays are joined without the lock: one that ends waits for its peers.
  void clear() {
    std::list<Connecting> done;
    std::list<Connected> ended;
    const auto take = [](auto& from, auto& to, const auto& is_over) {
      for (auto entry = from.begin(); entry != from.end();) {
        const auto next = std::next(entry);
        if (is_over(*entry)) to.splice(to.end(), from, entry);
        entry = next;
      }
    };
    {
      const std::lock_guard lock(mutex_);
      take(connecting_, done, [](const Connecting& connecting) { return connecting.done->load(); });
      take(connected_, ended, [](const Connected& connected) { return connected.relay->ended(); });
    }
    for (auto& connecting : done) connecting.thread.join();
  }

  ServeConfig config_;
  RefusalLog refusals_;
  ServerMetrics metrics_;
  std::atomic<bool> draining_ = false;
  CertificateWatch certificate_;
  Sessions sessions_;
  std::mutex mutex_;  // guards what follows
  std::list<Connecting> connecting_;
  std::list<Connected> connected_;
  transport::Listener listener_;               // its thread uses all of the above
  std::unique_ptr<monitor::HttpServer> http_;  // last: so do its threads; null without --metrics
};

}  // namespace

void serve(const ServeConfig& config, const std::atomic<bool>& stop, const std::function<void(int port)>& on_ready) {
  std::signal(SIGPIPE, SIG_IGN);  // of a log that nobody reads any more
  require_room(config.limits, config.clients);
  Server server(config);
  on_ready(server.port());
  const auto tick = [] { std::this_thread::sleep_for(std::chrono::milliseconds(100)); };
  while (!stop && server.listens()) {
    if (config.renew != nullptr && config.renew->exchange(false)) server.renew();
    server.watch();
    tick();
  }
  const bool deaf = !server.listens();
  log("draining: no new sessions; running ones are saved");
  server.drain();
  for (const Stopwatch watch; server.watch() > 0 && watch.seconds() < config.drain_seconds;) tick();
  if (deaf) throw std::runtime_error("the operating system closed the listening socket; start the server again");
}

}  // namespace epipe::serve
