#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <string>

namespace epipe::testing {

// A TCP connection to a port of this machine that says whatever it is told to.
class RawSocket {
 public:
  explicit RawSocket(int port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    const timeval timeout{5, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) throw std::runtime_error("cannot connect");
  }
  ~RawSocket() { ::close(fd_); }
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;

  void write(const std::string& bytes) const { (void)::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // Whether the other side hangs up, within a few seconds.
  bool ends() const {
    std::array<char, 4096> buffer;
    ssize_t got = 0;
    while ((got = ::recv(fd_, buffer.data(), buffer.size(), 0)) > 0) {
    }
    return got == 0 || errno == ECONNRESET;
  }

 private:
  int fd_;
};

}  // namespace epipe::testing
