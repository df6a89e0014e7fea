#include "epipe/monitor/http_socket.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "epipe/base/clock.h"

namespace epipe::monitor {
namespace {

constexpr int kBacklog = 64;  // connections waiting to be accepted

// Whether it becomes ready in time.
bool wait_for(int fd, short what, const Stopwatch& watch, double seconds) {
  for (double left = seconds - watch.seconds(); left > 0; left = seconds - watch.seconds()) {
    pollfd ready{fd, what, 0};
    const int count = ::poll(&ready, 1, static_cast<int>(left * 1000) + 1);
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return false;
  }
  return false;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

void Socket::shut() const { ::shutdown(fd_, SHUT_RDWR); }

std::string Socket::read_until(std::string_view end, std::size_t most, double seconds) const {
  std::string text;
  for (const Stopwatch watch; text.size() < most && wait_for(fd_, POLLIN, watch, seconds);) {
    std::array<char, 1024> buffer;
    const ssize_t got = ::recv(fd_, buffer.data(), std::min(buffer.size(), most - text.size()), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(got));
    if (const auto found = text.find(end); found != std::string::npos) return text.substr(0, found + end.size());
  }
  return "";
}

bool Socket::write(std::string_view text, double seconds) const {
  const Stopwatch watch;
  while (!text.empty()) {
    const ssize_t sent = ::send(fd_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) text.remove_prefix(static_cast<std::size_t>(sent));
    if (sent >= 0) continue;
    if (errno != EAGAIN && errno != EINTR) return false;
    if (!wait_for(fd_, POLLOUT, watch, seconds)) return false;
  }
  return true;
}

int Socket::port() const {
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  ::getsockname(fd_, reinterpret_cast<sockaddr*>(&own), &size);
  return ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(own).sin6_port : reinterpret_cast<sockaddr_in&>(own).sin_port);
}

Socket listen_at(const HttpAddress& address) {
  Socket socket(::socket(address.socket_address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));  // ignores ended connections, not another listener
  if (::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address.socket_address), address.socket_address_bytes) != 0 ||
      ::listen(socket.fd(), kBacklog) != 0) {
    throw std::runtime_error(fmt::format("cannot listen on {}: {}", address.text, std::strerror(errno)));
  }
  return socket;
}

}  // namespace epipe::monitor
