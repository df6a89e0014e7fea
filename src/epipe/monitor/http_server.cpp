#include "epipe/monitor/http_server.h"

#include <fmt/format.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <string_view>
#include <thread>

#include "epipe/base/clock.h"
#include "epipe/monitor/http_request.h"
#include "epipe/monitor/http_socket.h"

namespace epipe::monitor {
namespace {

constexpr std::size_t kConnections = 32;  // at once, a thread for each
constexpr int kMaxSubscribers = 16;       // of these, connections that follow events
constexpr double kWaitSeconds = 5;        // for a request to arrive, and for an answer to be taken
constexpr auto kBetweenEvents = std::chrono::milliseconds(200);
constexpr double kKeepAliveSeconds = 5;  // a failed write shows that a subscriber has left

std::string_view name_of(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 500: return "Internal Server Error";
    default: return "Service Unavailable";
  }
}

std::string head_of(int status, std::string_view type, std::string_view more) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n{}\r\n",
      status, name_of(status), type, more);
}

}  // namespace

struct HttpServer::State {
  // A client's connection. When `done` is set, its thread no longer uses the server.
  struct Connection {
    explicit Connection(Socket from) : socket(std::move(from)) {}
    Socket socket;
    std::thread thread{};
    bool done = false;  // guarded by the server's mutex
  };

  explicit State(HttpConfig given) : config(std::move(given)), address(parse_http_address(config.address)), listening(listen_at(address)) {
    acceptor = std::thread([this] { accept(); });
  }
  ~State() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
      for (const Connection& connection : connections) connection.socket.shut();
    }
    changed.notify_all();
    acceptor.join();
    for (Connection& connection : connections) connection.thread.join();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void accept() {
    while (wait_for_place()) {
      pollfd ready{listening.fd(), POLLIN, 0};
      if (::poll(&ready, 1, 100) <= 0) continue;
      Socket socket(::accept4(listening.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      if (socket.fd() < 0) {  // out of descriptors: the connection waits
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        continue;
      }
      const std::lock_guard lock(mutex);
      if (stopping) return;
      Connection& connection = connections.emplace_back(std::move(socket));
      connection.thread = std::thread([this, &connection] { serve(connection); });
    }
  }

  // Removes finished connections; false when the server ends.
  bool wait_for_place() {
    std::unique_lock lock(mutex);
    for (auto entry = connections.begin(); entry != connections.end();) {
      const auto next = std::next(entry);
      if (entry->done) {
        entry->thread.join();
        connections.erase(entry);
      }
      entry = next;
    }
    if (connections.size() >= kConnections) changed.wait_for(lock, std::chrono::milliseconds(100));
    return !stopping;
  }

  void serve(Connection& connection) {
    try {
      answer(connection.socket);
    } catch (const std::exception&) {  // no memory for an answer: it gets none
    }
    connection.socket.shut();
    const std::lock_guard lock(mutex);
    connection.done = true;
    changed.notify_all();
  }

  void answer(const Socket& socket) {
    const std::string head = socket.read_until("\r\n\r\n", kMaxRequestBytes, kWaitSeconds);
    if (head.empty()) return;
    const auto request = parse_http_request(head);
    if (!request) return send(socket, {.status = 400, .body = request.error().message + "\n"}, true);
    const auto& [method, path, host] = request.value();
    if (address.loopback && !may_be_asked_as(host, address)) {
      return send(socket, {.status = 403, .body = "ask for this server by its address or as localhost\n"}, true);
    }
    if (method != "GET" && method != "HEAD") return send(socket, {.status = 405, .body = "expected GET\n"}, true);
    if (const auto found = config.events.find(path); found != config.events.end()) return send_events(socket, found->second);
    send(socket, page(path), method == "GET");
  }

  Response page(const std::string& path) const {
    const auto found = config.pages.find(path);
    if (found == config.pages.end()) {
      std::string known;
      for (const auto& [name, content] : config.pages) known += name + "\n";
      return {.status = 404, .body = "no such page; there are:\n" + known};
    }
    try {
      return found->second();
    } catch (const std::exception& error) {
      return {.status = 500, .body = fmt::format("{}\n", error.what())};
    }
  }

  static void send(const Socket& socket, const Response& response, bool with_body) {
    const std::string length = fmt::format("Content-Length: {}\r\n", response.body.size());
    if (!socket.write(head_of(response.status, response.type, length), kWaitSeconds) || !with_body) return;
    (void)socket.write(response.body, kWaitSeconds);
  }

  void send_events(const Socket& socket, const Events& next) {
    if (++subscribers > kMaxSubscribers) {
      --subscribers;
      return send(socket, {.status = 503, .body = fmt::format("{} clients follow events already\n", kMaxSubscribers)}, true);
    }
    stream_events(socket, next);
    --subscribers;
  }

  void stream_events(const Socket& socket, const Events& next) {
    std::uint64_t seen = 0;
    Stopwatch silence;
    for (bool taken = socket.write(head_of(200, "text/event-stream", ""), kWaitSeconds); taken && pause();) {
      std::string text = next(seen);
      if (text.empty() && silence.seconds() > kKeepAliveSeconds) text = ": still here\n\n";
      if (text.empty()) continue;
      silence = {};
      taken = socket.write(text, kWaitSeconds);
    }
  }

  // Waits between two polls for events; false when the server ends.
  bool pause() {
    std::unique_lock lock(mutex);
    return !changed.wait_for(lock, kBetweenEvents, [this] { return stopping; });
  }

  const HttpConfig config;
  const HttpAddress address;
  const Socket listening;
  std::atomic<int> subscribers = 0;
  std::mutex mutex;                 // guards the members below
  std::condition_variable changed;  // a connection is done, or the server ends
  bool stopping = false;
  std::list<Connection> connections;
  std::thread acceptor;
};

HttpServer::HttpServer(HttpConfig config) : state_(std::make_unique<State>(std::move(config))) {}
HttpServer::~HttpServer() = default;

int HttpServer::port() const { return state_->listening.port(); }

std::string HttpServer::url() const { return fmt::format("http://{}:{}", state_->address.numeric_host, port()); }

bool HttpServer::open_to_others() const { return !state_->address.loopback; }

}  // namespace epipe::monitor
