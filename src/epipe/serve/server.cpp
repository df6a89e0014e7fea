#include "epipe/serve/server.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "epipe/base/clock.h"
#include "epipe/base/file.h"
#include "epipe/base/secret.h"
#include "epipe/serve/child.h"
#include "epipe/serve/log.h"
#include "epipe/serve/socket_folder.h"
#include "epipe/transport/grpc/dialer.h"
#include "epipe/transport/grpc/listener.h"
#include "epipe/transport/grpc/relay.h"
#include "epipe/transport/measure_link.h"

namespace epipe::serve {
namespace {

using transport::Incoming;
using transport::Refusal;

constexpr transport::Patience kMeasurePatience = std::chrono::seconds(30);
constexpr double kStartSeconds = 30;
constexpr std::uint64_t kRoomBytes = 100'000'000;  // threads and buffers of a first connection

bool is_hex(const std::string& text, std::size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string value_of(const std::map<std::string, std::string>& about, const std::string& key) {
  const auto found = about.find(key);
  return found == about.end() ? "" : found->second;
}

std::string socket_path(const std::string& address) { return address.substr(std::string_view("unix:").size()); }

// A session whose process runs.
struct Running {
  pid_t pid = 0;
  std::string ticket;
  std::string socket;
};

// A thread that answers one measuring peer.
struct Measuring {
  std::thread thread;
  std::shared_ptr<std::atomic<bool>> over = std::make_shared<std::atomic<bool>>(false);  // shared with the thread
};

// What a session holds before it has a model, this process holds as well: the libraries, and the threads of a listener.
void require_room(std::uint64_t session_bytes) {
  const std::uint64_t least = held_bytes() + kRoomBytes;
  if (session_bytes == 0 || session_bytes >= least) return;
  throw std::invalid_argument(
      fmt::format("a session needs {:.2f} GB and its model's weights, gradients and activations, but may hold {:.2f}; "
                  "give --session-memory more",
                  static_cast<double>(least) / 1e9, static_cast<double>(session_bytes) / 1e9));
}

class Server {
 public:
  explicit Server(const ServeConfig& config) : config_(config), listener_(config.listen, [this](Incoming i) { receive(std::move(i)); }) {}
  ~Server() {
    listener_.shutdown();
    for (auto& measuring : measuring_) measuring.thread.join();
    for (const auto& [name, session] : sessions_) ::kill(session.pid, SIGKILL);
    for (const auto& [name, session] : sessions_) ::waitpid(session.pid, nullptr, 0);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const { return listener_.port(); }

  void drain() {
    draining_ = true;
    listener_.set_serving(false);
    const std::lock_guard lock(mutex_);
    for (const auto& [name, session] : sessions_) ::kill(session.pid, SIGTERM);
  }

  // Forgets sessions that ended; returns how many run.
  std::size_t reap() {
    const std::lock_guard lock(mutex_);
    std::erase_if(relays_, [](const auto& relay) { return relay->ended(); });
    std::erase_if(measuring_, [](Measuring& measuring) {
      const bool over = *measuring.over;
      if (over) measuring.thread.join();
      return over;
    });
    std::erase_if(sessions_, [this](const auto& entry) {
      int status = 0;
      if (::waitpid(entry.second.pid, &status, WNOHANG) == 0) return false;
      if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) expired_.insert(entry.first);
      log("session {:.8} {}", entry.first, WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status)) : "has ended");
      return true;
    });
    return sessions_.size();
  }

 private:
  // By the listener's thread, which lives as long as the server.
  void receive(Incoming incoming) {
    try {
      if (value_of(incoming.about(), "channel") == "measure") return measure(incoming);
      const Running session = find_or_start(incoming);
      connect(incoming, session);
    } catch (const transport::Refused& refused) {
      log("refused {}: {}", incoming.peer(), refused.what());
      incoming.refuse(refused.why(), refused.what());
    } catch (const std::exception& error) {
      log("failed for {}: {}", incoming.peer(), error.what());
      incoming.refuse(Refusal::kOther, error.what());
    }
  }

  Running find_or_start(const Incoming& incoming) {
    reap();
    const std::string name = value_of(incoming.about(), "session");
    const std::string ticket = value_of(incoming.about(), "ticket");
    if (!is_hex(name, 32) || !is_hex(ticket, 64)) throw transport::Refused(Refusal::kNotFound, "a session is named by hex digits");
    const std::lock_guard lock(mutex_);
    if (const auto found = sessions_.find(name); found != sessions_.end()) {
      if (!equal_secret(found->second.ticket, ticket)) throw transport::Refused(Refusal::kUnauthenticated, "not your session");
      return found->second;
    }
    if (value_of(incoming.about(), "channel") != "commands") throw transport::Refused(Refusal::kNotFound, "no such session");
    if (expired_.contains(name)) {
      throw transport::Refused(Refusal::kOther, fmt::format("the session has had its {} seconds on this server", config_.limits.seconds));
    }
    if (draining_) throw transport::Refused(Refusal::kFull, "the server is about to end and takes no new sessions");
    if (static_cast<int>(sessions_.size()) >= config_.max_sessions) {
      throw transport::Refused(Refusal::kFull, fmt::format("the server has its {} sessions, try again later", config_.max_sessions));
    }
    return start(name, ticket, incoming.peer());
  }

  Running start(const std::string& name, const std::string& ticket, const std::string& client) {
    const std::string state = config_.state_dir + "/" + name;
    check_ticket(state, ticket);
    SessionConfig session;
    session.socket = fmt::format("unix:{}/{}", sockets_.path(), name);
    session.state_dir = state;
    session.name = name;
    session.ticket = ticket;
    session.limits = config_.limits;
    session.device = config_.device;
    session.peers = config_.peers;
    session.dial = config_.dial;
    (void)remove_tree(socket_path(session.socket));  // of an earlier process of the session
    Running running{start_session(session), ticket, session.socket};
    sessions_[name] = running;
    log("session {:.8} for {} in process {}", name, client, running.pid);
    return running;
  }

  // A session that continues after the server ended must show the ticket it began with.
  static void check_ticket(const std::string& state, const std::string& ticket) {
    const std::string path = state + "/ticket";
    if (const auto earlier = read_file(path, 64); earlier) {
      const std::string text(reinterpret_cast<const char*>(earlier.value().data()), earlier.value().size());
      if (!equal_secret(text, ticket)) throw transport::Refused(Refusal::kUnauthenticated, "not your session");
      return;
    }
    Result<void> written = make_folders(state);
    if (written) written = write_private_file(path, {std::as_bytes(std::span(ticket))});
    if (!written) throw std::runtime_error(written.error().message);
  }

  void connect(Incoming& incoming, const Running& session) {
    auto inner = open_inner(session, incoming.about());
    const std::lock_guard lock(mutex_);
    relays_.push_back(std::make_unique<transport::Relay>(incoming.accept(), std::move(inner), [](const std::string&) {}));
  }

  // A session that was just started takes a moment to listen, and another between its socket's name and the first connection.
  static std::unique_ptr<transport::Link> open_inner(const Running& session, const std::map<std::string, std::string>& about) {
    transport::DialConfig dial;
    dial.address = session.socket;
    dial.insecure = true;
    const std::string path = socket_path(session.socket);
    for (const Stopwatch watch;; std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
      try {
        if (::access(path.c_str(), F_OK) == 0) return transport::Dialer(dial).open(about);
      } catch (const transport::Refused&) {
        throw;
      } catch (const transport::Lost&) {
        if (watch.seconds() > kStartSeconds) throw;
      }
      const bool gone = ::kill(session.pid, 0) != 0;
      if (gone || watch.seconds() > kStartSeconds) throw std::runtime_error("the session's process did not start");
    }
  }

  void measure(Incoming& incoming) {
    Measuring measuring;
    measuring.thread = std::thread([link = std::shared_ptr<transport::Link>(incoming.accept()), over = measuring.over] {
      try {
        transport::serve_measurement(*link, kMeasurePatience);
      } catch (const std::exception&) {
        // The measuring peer left.
      }
      link->close();
      *over = true;
    });
    const std::lock_guard lock(mutex_);
    measuring_.push_back(std::move(measuring));
  }

  ServeConfig config_;
  SocketFolder sockets_;
  std::atomic<bool> draining_ = false;
  std::mutex mutex_;                         // guards what follows
  std::map<std::string, Running> sessions_;  // by name
  std::set<std::string> expired_;            // sessions that were ended by their limit on time
  std::list<std::unique_ptr<transport::Relay>> relays_;
  std::list<Measuring> measuring_;
  transport::Listener listener_;  // last: its thread uses all of the above
};

}  // namespace

void serve(const ServeConfig& config, const std::atomic<bool>& stop, const std::function<void(int port)>& on_ready) {
  if (const auto made = make_folders(config.state_dir); !made) throw std::runtime_error(made.error().message);
  Server server(config);
  require_room(config.limits.memory_bytes);
  on_ready(server.port());
  const auto tick = [] { std::this_thread::sleep_for(std::chrono::milliseconds(100)); };
  while (!stop) {
    server.reap();
    tick();
  }
  log("draining: no new sessions; running ones are saved");
  server.drain();
  for (const Stopwatch watch; server.reap() > 0 && watch.seconds() < config.drain_seconds;) tick();
}

}  // namespace epipe::serve
