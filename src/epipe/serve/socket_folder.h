#pragma once

#include <string>

namespace epipe::serve {

// A folder for the sockets of a server's sessions, which only this user can enter; removed with this object. Socket paths must be short, so
// it is not in the state folder. Making one also removes folders of killed servers: each server holds a lock in its own.
class SocketFolder {
 public:
  // Throws std::runtime_error.
  explicit SocketFolder(const std::string& base = "/tmp");
  ~SocketFolder();
  SocketFolder(const SocketFolder&) = delete;
  SocketFolder& operator=(const SocketFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int lock_ = -1;
};

}  // namespace epipe::serve
