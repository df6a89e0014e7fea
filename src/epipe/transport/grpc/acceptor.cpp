#include "epipe/transport/grpc/acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>

namespace epipe::transport {
namespace {

constexpr int kBacklog = 128;
constexpr int kPauseMs = 100;  // before accepting again when the operating system has no room

std::string text_of(const sockaddr_storage& address, bool with_port) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return with_port ? fmt::format("{}:{}", text.data(), ntohs(v4.sin_port)) : text.data();
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
  return with_port ? fmt::format("[{}]:{}", text.data(), ntohs(v6.sin6_port)) : text.data();
}

int port_of(int fd) {
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(bound).sin_port
                                          : reinterpret_cast<const sockaddr_in6&>(bound).sin6_port);
}

void set_port(sockaddr* address, int port) {
  const auto network = htons(static_cast<std::uint16_t>(port));
  if (address->sa_family == AF_INET) reinterpret_cast<sockaddr_in*>(address)->sin_port = network;
  if (address->sa_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(address)->sin6_port = network;
}

// Accepted sockets inherit these, which are gRPC's: pieces are sent at once, and a peer that acknowledges nothing for `timeout` is gone.
void set_options(int fd, Timeout timeout) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const auto milliseconds = static_cast<unsigned>(std::clamp<Timeout::rep>(timeout.count(), 1, 3'600'000));
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof(milliseconds));
}

// A listening socket, or -1 with errno.
int listen_at(const addrinfo& at, Timeout timeout) {
  const int fd = ::socket(at.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  set_options(fd, timeout);
  const bool any_v6 = at.ai_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<sockaddr_in6*>(at.ai_addr)->sin6_addr);
  const int v6_only = any_v6 ? 0 : 1;  // [::] is every address, IPv4's as well
  if (at.ai_family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only));
  if (::bind(fd, at.ai_addr, at.ai_addrlen) == 0 && ::listen(fd, kBacklog) == 0) return fd;
  const int reason = errno;
  ::close(fd);
  errno = reason;
  return -1;
}

[[noreturn]] void cannot_listen(const Address& address, const std::string& why) {
  throw std::runtime_error(
      fmt::format("cannot listen on {}: {}; end the program that has the port or choose another one (0: any that is free), on an address "
                  "of this machine",
                  address.text, why));
}

// Where it listens on TCP, or nothing.
std::optional<sockaddr_storage> listens_at(int fd) {
  int listens = 0;
  socklen_t length = sizeof(listens);
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) return std::nullopt;
  sockaddr_storage bound{};
  length = sizeof(bound);
  const bool known = ::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length) == 0;
  return known && (bound.ss_family == AF_INET || bound.ss_family == AF_INET6) ? std::optional(bound) : std::nullopt;
}

bool is_loopback(const sockaddr_storage& at) {
  if (at.ss_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(at).sin6_addr);
  return ntohl(reinterpret_cast<const sockaddr_in&>(at).sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

// Returns its port. What may be said on this machine alone (plaintext) is not said at a socket that others reach.
int adopt(int fd, const Address& address, Timeout timeout) {
  const auto bound = listens_at(fd);
  const int port = bound ? port_of(fd) : 0;
  if (!bound || (address.port != 0 && port != address.port) || (address.is_local && !is_loopback(*bound))) {
    throw std::runtime_error(fmt::format(
        "expected the socket that was handed over to listen on TCP at {}, got {}; make ListenStream of the .socket unit and listen of the "
        "server the same",
        address.text, bound ? text_of(*bound, true) : fmt::format("descriptor {}, which does not", fd)));
  }
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  set_options(fd, timeout);
  return port;
}

bool out_of_room(int reason) { return reason == EMFILE || reason == ENFILE || reason == ENOBUFS || reason == ENOMEM; }
// accept(2): network errors belong to the connection, not to the listening socket.
bool of_the_connection(int reason) {
  constexpr std::array kReasons{ECONNABORTED, EINTR,        EPROTO,     ENETDOWN, ENOPROTOOPT, EHOSTDOWN,
                                ENONET,       EHOSTUNREACH, EOPNOTSUPP, EPERM,    ENETUNREACH};
  return std::find(kReasons.begin(), kReasons.end(), reason) != kReasons.end();
}

int open_spare() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

}  // namespace

Acceptor::Acceptor(const Address& address, const std::vector<int>& handed_over, Limits limits, Handlers handlers)
    : limits_(limits), handlers_(std::move(handlers)), own_sockets_(handed_over.empty()), listening_(handed_over) {
  for (const int fd : handed_over) port_ = adopt(fd, address, limits.acknowledge);
  if (own_sockets_) open_sockets(address);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  spare_ = open_spare();
}

void Acceptor::open_sockets(const Address& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int status = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (status != 0) cannot_listen(address, ::gai_strerror(status));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, ::freeaddrinfo);
  int reason = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if (port_ != 0) set_port(at->ai_addr, port_);  // a name with several addresses has one port
    const int fd = listen_at(*at, limits_.acknowledge);
    if (fd < 0) {
      reason = errno;
      continue;
    }
    listening_.push_back(fd);
    port_ = port_of(fd);
  }
  if (listening_.empty()) cannot_listen(address, std::strerror(reason));
}

Acceptor::~Acceptor() {
  stop();
  for (const int fd : listening_) ::close(fd);
  ::close(wake_);
  if (spare_ >= 0) ::close(spare_);
}

void Acceptor::start() {
  thread_ = std::thread([this] { run(); });
}

void Acceptor::stop() {
  if (!thread_.joinable()) return;
  ::eventfd_write(wake_, 1);
  thread_.join();
  if (!own_sockets_) return;                                  // clients that wait are accepted by the next process
  for (const int fd : listening_) ::shutdown(fd, SHUT_RDWR);  // wakes clients that wait to be accepted
}

void Acceptor::run() {
  std::vector<pollfd> waiting{{wake_, POLLIN, 0}};
  for (const int fd : listening_) waiting.push_back({fd, POLLIN, 0});
  while (alive_) {
    if (::poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR) alive_ = false;
    if (waiting[0].revents != 0) return;
    for (std::size_t i = 1; i < waiting.size(); ++i) {
      if ((waiting[i].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) alive_ = false;
      if ((waiting[i].revents & POLLIN) != 0) accept_all(waiting[i].fd);
    }
  }
}

void Acceptor::accept_all(int listening) {
  while (true) {
    sockaddr_storage from{};
    socklen_t length = sizeof(from);
    const int fd = ::accept4(listening, reinterpret_cast<sockaddr*>(&from), &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      take(fd, text_of(from, false), text_of(from, true));
    } else if (out_of_room(errno)) {
      return shed(listening);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (!of_the_connection(errno)) {
      alive_ = false;
      return;
    }
  }
}

void Acceptor::take(int fd, const std::string& host, const std::string& peer) {
  const auto of_host = [&] { return std::count_if(open_.begin(), open_.end(), [&](const Open& open) { return open.host == host; }); };
  const auto full = [&] { return static_cast<int>(open_.size()) >= limits_.connections; };
  if (full() || of_host() >= limits_.per_address) forget_closed();
  if (full() || of_host() >= limits_.per_address) {
    const std::string reason = full() ? fmt::format("there are {} connections, as many as this server takes", limits_.connections)
                                      : fmt::format("{} connections of one host, as many as this server takes", limits_.per_address);
    ::close(fd);
    return handlers_.refused(peer, reason);
  }
  struct stat status {};
  ::fstat(fd, &status);
  open_.push_back({fd, status.st_ino, host});
  handlers_.accepted(fd);
}

void Acceptor::forget_closed() {
  std::erase_if(open_, [](const Open& open) {
    struct stat status {};
    return ::fstat(open.fd, &status) != 0 || !S_ISSOCK(status.st_mode) || status.st_ino != open.socket;
  });
}

// No descriptor is left: uses the spare one to accept and close waiting connections, so that they know and the queue does not fill.
void Acceptor::shed(int listening) {
  if (spare_ >= 0) {
    ::close(spare_);
    sockaddr_storage from{};
    socklen_t length = sizeof(from);
    const int fd = ::accept4(listening, reinterpret_cast<sockaddr*>(&from), &length, SOCK_CLOEXEC);
    if (fd >= 0) {
      ::close(fd);
      handlers_.refused(text_of(from, true), "this server has no file descriptor left");
    }
  }
  spare_ = open_spare();
  pollfd woken{wake_, POLLIN, 0};
  if (spare_ < 0) ::poll(&woken, 1, kPauseMs);
}

}  // namespace epipe::transport
