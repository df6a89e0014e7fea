#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace epipe::testing {

// A bad network between a client and a port of this machine: bytes arrive late, stop coming, or arrive changed.
class Proxy {
 public:
  using Delay = std::chrono::milliseconds;

  explicit Proxy(int target, Delay each_way = Delay(0)) : target_(target), delay_(each_way), listener_(listen()) {
    thread_ = std::thread([this] { accept(); });
  }
  ~Proxy() {
    over_ = true;
    thread_.join();
    for (auto& thread : ways_) thread.join();
    ::close(listener_);
  }
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::uint64_t bytes() const { return bytes_; }  // so far, both ways
  int connections() const { return connections_; }
  // From now on the connections that exist carry nothing more, and do not end either; new ones work.
  void stall() { stalled_before_ = connections_.load(); }
  void stall_forever() { stalled_before_ = 1 << 30; }
  // Changes one bit of what goes to the server, so many bytes from now.
  void flip_after(std::int64_t bytes) { flip_in_ = bytes; }

 private:
  struct Chunk {
    std::chrono::steady_clock::time_point due;
    std::string bytes;
  };

  int listen() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(0);
    socklen_t length = sizeof(address);
    const bool fine = ::bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 && ::listen(fd, 16) == 0 &&
                      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0;
    if (!fine) throw std::runtime_error("cannot listen");
    port_ = ntohs(address.sin_port);
    return fd;
  }
  static sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    return address;
  }

  void accept() {
    while (!over_) {
      pollfd waiting{listener_, POLLIN, 0};
      if (::poll(&waiting, 1, 20) <= 0) continue;
      const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_in address = loopback(target_);
      if (::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
        ::close(client);
        ::close(server);
        continue;
      }
      ways_.emplace_back([this, client, server, number = connections_++] { carry(client, server, number); });
    }
  }

  // One connection, both ways, until one end is gone.
  void carry(int client, int server, int number) {
    const int yes = 1;
    std::array<int, 2> ends{client, server};
    for (const int end : ends) ::setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    std::array<std::deque<Chunk>, 2> on_the_way;  // by the end they come from
    bool open = true;
    while (!over_ && (open || !on_the_way[0].empty() || !on_the_way[1].empty())) {
      if (number < stalled_before_) {
        std::this_thread::sleep_for(Delay(10));
        continue;
      }
      for (std::size_t from = 0; from < 2; ++from) {
        if (open && !take(ends[from], from == 0, on_the_way[from])) open = false;
        if (!give(ends[1 - from], on_the_way[from])) on_the_way[from].clear();
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    ::close(client);
    ::close(server);
  }

  // False when the end is gone.
  bool take(int end, bool to_server, std::deque<Chunk>& on_the_way) {
    std::string buffer(1 << 16, '\0');
    const ssize_t got = ::recv(end, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    buffer.resize(static_cast<std::size_t>(got));
    bytes_ += buffer.size();
    if (to_server) flip(buffer);
    on_the_way.push_back({std::chrono::steady_clock::now() + delay_, std::move(buffer)});
    return true;
  }

  void flip(std::string& buffer) {
    const std::int64_t position = flip_in_;
    if (position < 0) return;
    if (position < static_cast<std::int64_t>(buffer.size())) buffer[static_cast<std::size_t>(position)] ^= 1;
    flip_in_ = position < static_cast<std::int64_t>(buffer.size()) ? -1 : position - static_cast<std::int64_t>(buffer.size());
  }

  static bool give(int end, std::deque<Chunk>& on_the_way) {
    while (!on_the_way.empty() && on_the_way.front().due <= std::chrono::steady_clock::now()) {
      std::string& bytes = on_the_way.front().bytes;
      const ssize_t sent = ::send(end, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0) return errno == EAGAIN || errno == EINTR;
      bytes.erase(0, static_cast<std::size_t>(sent));
      if (!bytes.empty()) return true;
      on_the_way.pop_front();
    }
    return true;
  }

  const int target_;
  const Delay delay_;
  int port_ = 0;
  const int listener_;
  std::atomic<bool> over_ = false;
  std::atomic<std::uint64_t> bytes_ = 0;
  std::atomic<int> connections_ = 0;
  std::atomic<int> stalled_before_ = 0;  // connections with a lower number
  std::atomic<std::int64_t> flip_in_ = -1;
  std::list<std::thread> ways_;  // by the accepting thread
  std::thread thread_;
};

}  // namespace epipe::testing
