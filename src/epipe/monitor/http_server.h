#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace epipe::monitor {

struct Response {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body{};
};

// Server-sent events after `seen`, ready to write, or none; sets `seen` to the last one. Called a few times a second for each subscriber,
// by threads of the server.
using Events = std::function<std::string(std::uint64_t& seen)>;

struct HttpConfig {
  std::string address;                                     // HOST:PORT, [::1]:PORT; port 0: any free one
  std::map<std::string, std::function<Response()>> pages;  // by path; called by the server's threads
  std::map<std::string, Events> events{};                  // by path
};

// Answers GET for a few pages, one thread per connection. The numbers of connections and of subscribers to events, the length of a request
// and every wait are bounded; further connections wait. On loopback it answers only requests that address this machine by IP address or as
// localhost, so that a foreign page cannot read it through a browser here under its own name (DNS rebinding). (civetweb, the server in
// prometheus-cpp, fails with "Cannot create threads" in a process with LibTorch; without LibTorch it starts.)
class HttpServer {
 public:
  // Throws std::invalid_argument if the address is invalid, std::runtime_error if it is taken or not on this machine.
  explicit HttpServer(HttpConfig config);
  ~HttpServer();  // ends the events and joins its threads
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  std::string url() const;      // "http://127.0.0.1:9100"
  bool open_to_others() const;  // reachable from other machines

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace epipe::monitor
