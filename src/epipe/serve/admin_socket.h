#pragma once

#include <atomic>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <thread>

#include "epipe/monitor/http_socket.h"
#include "epipe/serve/admin_request.h"

namespace epipe::serve {

// Where the operator of a server asks: a Unix socket in the folder `admin` of the state folder. Only the server's user can enter the
// folder, and who connects must be that user or root by the kernel's word. A thread of its own answers one after the other: each has two
// seconds to ask, with 4 KiB at most, and five to take the answer. Nobody else in the server waits for it.
class AdminSocket {
 public:
  // Answers with an object. Called by the socket's thread; what it throws is the "error" of the answer.
  using Handler = std::function<nlohmann::json(const AdminRequest&)>;
  // Whoever makes it holds the state folder's lock: a socket that is there is of a server that was killed. Throws std::runtime_error.
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

// Asks the server that has this state folder. Throws std::runtime_error where none runs, where it is another user's, and with what the
// server has against the request.
nlohmann::json ask_server(const std::string& state_dir, const AdminRequest& request);

}  // namespace epipe::serve
