#pragma once

#include <atomic>
#include <functional>
#include <nlohmann/json_fwd.hpp>
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

// Sends a request to the server with this state folder. Throws std::runtime_error if none runs, if it is another user's, or with the
// server's error.
nlohmann::json ask_server(const std::string& state_dir, const AdminRequest& request);

}  // namespace epipe::serve
