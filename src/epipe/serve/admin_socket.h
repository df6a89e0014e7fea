#pragma once

#include <atomic>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <thread>

#include "epipe/monitor/http_socket.h"
#include "epipe/serve/admin_request.h"

namespace epipe::serve {

// The operator's interface to a server: a Unix socket in the folder `admin` of the state folder. Only the server's user can enter the
// folder, and the kernel must report a connecting process as that user or root. A separate thread answers one request at a time: each
// client has two seconds to send it, at most 4 KiB, and five to take the answer. Nothing else in the server waits for it.
class AdminSocket {
 public:
  // Answers with an object. Called by the socket's thread; exceptions become the "error" of the answer.
  using Handler = std::function<nlohmann::json(const AdminRequest&)>;
  // The caller must hold the state folder's lock: an existing socket is then left from a killed server. Throws std::runtime_error.
  AdminSocket(const std::string& state_dir, Handler handler);
  ~AdminSocket();
  AdminSocket(const AdminSocket&) = delete;
  AdminSocket& operator=(const AdminSocket&) = delete;

 private:
  void run();
  void answer(const monitor::Socket& client) const;

  const Handler handler_;
  const std::string folder_;
  monitor::Socket listening_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

// Nobody listens in the state folder: the server has not begun, or has ended.
class NoServer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// It took the request and closed the connection: it ends, or has no memory for an answer.
class ServerHungUp : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Sends a request to the server with this state folder. Throws NoServer if none runs, ServerHungUp, and std::runtime_error if it is another
// user's, if no answer comes within `seconds`, or with the server's error.
inline constexpr double kAnswerSeconds = 20;  // with many clients at once
nlohmann::json ask_server(const std::string& state_dir, const AdminRequest& request, double seconds = kAnswerSeconds);

}  // namespace epipe::serve
