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

// Server-sent events since `seen`, ready to write, or none; sets `seen` to the last of them. Asked for a few times a second and for
// everybody who looks, by threads of the server.
using Events = std::function<std::string(std::uint64_t& seen)>;

struct HttpConfig {
  std::string address;                                     // HOST:PORT, [::1]:PORT; port 0: any free one
  std::map<std::string, std::function<Response()>> pages;  // by path; called by threads of the server
  std::map<std::string, Events> events{};                  // by path
};

// Answers GET for a few pages, each connection by a thread of its own. Connections, those of them that look at events, the length of a
// request and every wait are bounded; who comes when all places are taken waits for one. On loopback it answers only what asks for this
// machine by address or as localhost: a page elsewhere cannot have a browser here read it under a name of its own. (civetweb, which
// prometheus-cpp brings, says "Cannot create threads" in a process with LibTorch, and starts without it.)
class HttpServer {
 public:
  // Throws std::invalid_argument where the address is none, std::runtime_error where it is taken or not of this machine.
  explicit HttpServer(HttpConfig config);
  ~HttpServer();  // ends the events and joins its threads
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  std::string url() const;      // "http://127.0.0.1:9100"
  bool open_to_others() const;  // outside this machine

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace epipe::monitor
