#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace epipe::testing {

struct HttpAnswer {
  int status = 0;    // 0: no answer
  std::string head;  // status line and headers
  std::string body;
};

// A connection to a port of this machine that waits a bounded time for answers.
class HttpConnection {
 public:
  explicit HttpConnection(int port, double seconds = 20) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    const timeval timeout{static_cast<time_t>(seconds), 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      ::close(fd_);
      throw std::runtime_error("cannot connect");
    }
  }
  ~HttpConnection() { ::close(fd_); }
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  void write(const std::string& text) const { (void)::send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  // What arrives until the other side hangs up, or until `enough` is in it.
  std::string read(const std::string& enough = "") const {
    std::string text;
    std::array<char, 65536> buffer;
    for (ssize_t got = 0; (got = ::recv(fd_, buffer.data(), buffer.size(), 0)) > 0;) {
      text.append(buffer.data(), static_cast<std::size_t>(got));
      if (!enough.empty() && text.find(enough) != std::string::npos) break;
    }
    return text;
  }

 private:
  int fd_;
};

inline HttpAnswer parse_answer(const std::string& text) {
  const auto blank = text.find("\r\n\r\n");
  if (!text.starts_with("HTTP/1.1 ") || blank == std::string::npos) return {0, text, ""};
  return {std::atoi(text.c_str() + 9), text.substr(0, blank), text.substr(blank + 4)};
}

inline HttpAnswer http_get(int port, const std::string& path, const std::string& host = "127.0.0.1", const std::string& method = "GET") {
  const HttpConnection connection(port);
  connection.write(method + " " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n");
  return parse_answer(connection.read());
}

}  // namespace epipe::testing
