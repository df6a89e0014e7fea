#include "epipe/transport/c10d/tcp_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "epipe/transport/c10d/interface.h"

namespace epipe::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::hours kLongestTimeout{24 * 365};  // a clock's time must hold it
constexpr std::chrono::milliseconds kConnectPause{50};
constexpr std::chrono::milliseconds kFirstPause{1};  // of a wait; doubles up to
constexpr std::chrono::milliseconds kLongestPause{20};

std::string to_text(const std::vector<std::uint8_t>& value) { return {value.begin(), value.end()}; }
std::vector<std::uint8_t> to_value(const std::string& text) { return {text.begin(), text.end()}; }

// Waits until the socket is ready for `events`. Throws std::runtime_error at the deadline.
void await(int fd, short events, Clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) throw std::runtime_error("no answer in time");
    pollfd file{fd, events, 0};
    if (::poll(&file, 1, static_cast<int>(std::min<std::int64_t>(left, INT_MAX))) > 0) return;
  }
}

[[noreturn]] void throw_errno() { throw std::runtime_error(std::strerror(errno)); }

void send_all(int fd, ByteView bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && !would_block()) throw_errno();
    if (sent < 0) {
      await(fd, POLLOUT, deadline);
    } else {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
  }
}

void recv_all(int fd, MutableBytes bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    await(fd, POLLIN, deadline);
    const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (got == 0) throw std::runtime_error("rank 0 closed the connection");
    if (got < 0 && !would_block()) throw_errno();
    if (got > 0) bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

// A connected socket, or -1 and errno.
int try_connect(const SocketAddress& address, Clock::time_point deadline) {
  const int fd = ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  int error = ::connect(fd, address.get(), address.size) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    socklen_t size = sizeof(error);
    try {
      await(fd, POLLOUT, deadline);
      ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    } catch (const std::runtime_error&) {
      error = ETIMEDOUT;
    }
  }
  if (error == 0) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
  }
  ::close(fd);
  errno = error;
  return -1;
}

// Names are resolved on each attempt: rank 0's machine may get its name later than this rank starts.
int connect_to(const std::string& host, int port, Clock::time_point deadline) {
  while (true) {
    std::string why;
    try {
      for (const SocketAddress& address : resolve(host, port)) {
        const int fd = try_connect(address, deadline);
        if (fd >= 0) return fd;
        why = std::strerror(errno);
      }
    } catch (const std::runtime_error& unknown) {
      why = unknown.what();
    }
    if (Clock::now() + kConnectPause >= deadline) throw std::runtime_error(why);
    std::this_thread::sleep_for(kConnectPause);
  }
}

}  // namespace

TcpStore::TcpStore(std::string host, int port, Timeout timeout, std::shared_ptr<StoreServer> server)
    : Store(std::min<Timeout>(timeout, kLongestTimeout)), host_(std::move(host)), port_(port), server_(std::move(server)) {
  fd_ = connect_to(host_, port_, Clock::now() + getTimeout());
}

TcpStore::~TcpStore() {
  if (fd_ >= 0) ::close(fd_);
}

c10::intrusive_ptr<c10d::Store> TcpStore::clone() { return c10::make_intrusive<TcpStore>(host_, port_, getTimeout(), server_); }

TcpStore::Answer TcpStore::ask(StoreOperation operation, const std::string& key, std::string_view argument) {
  Bytes request(sizeof(std::uint32_t), std::byte{0});
  epipe::append(request, static_cast<std::uint8_t>(operation));
  append_sized_text(request, key);
  append_text(request, argument);
  const std::size_t size = request.size() - sizeof(std::uint32_t);
  if (size > kMaxStoreBytes) throw std::runtime_error(fmt::format("the store takes at most {} bytes, got {}", kMaxStoreBytes, size));
  store(request, 0, static_cast<std::uint32_t>(size));

  const std::lock_guard lock(mutex_);
  if (fd_ < 0) throw std::runtime_error("the connection to rank 0 is lost");
  const auto deadline = Clock::now() + getTimeout();
  try {
    send_all(fd_, request, deadline);
    std::array<std::byte, sizeof(std::uint32_t)> head{};
    recv_all(fd_, head, deadline);
    const auto length = load<std::uint32_t>(head, 0);
    if (length < 1 || length > kMaxStoreBytes + sizeof(std::uint8_t)) throw std::runtime_error("rank 0 has no store of epipe's");
    Bytes answer(length, std::byte{0});
    recv_all(fd_, answer, deadline);
    return {answer[0] != std::byte{0}, to_text(ByteView(answer).subspan(1))};
  } catch (...) {
    ::close(std::exchange(fd_, -1));  // a late answer would be taken for the answer to another request
    throw;
  }
}

void TcpStore::set(const std::string& key, const std::vector<std::uint8_t>& value) { ask(StoreOperation::kSet, key, to_text(value)); }

std::vector<std::uint8_t> TcpStore::compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                               const std::vector<std::uint8_t>& desired) {
  Bytes argument;
  append_sized_text(argument, to_text(expected));
  append_text(argument, to_text(desired));
  return to_value(ask(StoreOperation::kCompareSet, key, to_text(argument)).value);
}

std::vector<std::uint8_t> TcpStore::get(const std::string& key) {
  wait({key});
  return to_value(ask(StoreOperation::kGet, key).value);
}

std::int64_t TcpStore::add(const std::string& key, std::int64_t value) {
  return std::stoll(ask(StoreOperation::kAdd, key, fmt::to_string(value)).value);
}

bool TcpStore::deleteKey(const std::string& key) { return ask(StoreOperation::kDelete, key).there; }

bool TcpStore::check(const std::vector<std::string>& keys) {
  return std::all_of(keys.begin(), keys.end(), [this](const std::string& key) { return ask(StoreOperation::kGet, key).there; });
}

std::int64_t TcpStore::getNumKeys() { return std::stoll(ask(StoreOperation::kCount, "").value); }

void TcpStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  const auto deadline = Clock::now() + timeout;
  for (auto pause = kFirstPause; !check(keys); pause = std::min(2 * pause, kLongestPause)) {
    if (timeout != kNoTimeout && Clock::now() >= deadline) {
      throw std::runtime_error(fmt::format("nobody set '{}' within {} ms", fmt::join(keys, "', '"), timeout.count()));
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace epipe::transport
