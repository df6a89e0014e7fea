#include "epipe/transport/c10d/store_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "epipe/transport/c10d/interface.h"

namespace epipe::transport {
namespace {

constexpr std::size_t kMaxConnections = 1 << 16;  // as many as there may be ranks
constexpr std::chrono::milliseconds kAcceptPause{20};

// On failure nullopt, with errno set.
int listen_on(const SocketAddress& address) {
  const int fd = ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));  // an earlier run's connections may linger
  if (::bind(fd, address.get(), address.size) == 0 && ::listen(fd, SOMAXCONN) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

std::int64_t number_of(std::string_view text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

constexpr std::size_t kEntryBytes = 128;  // what a map and two strings need besides their characters

std::size_t memory_of(const std::string& key, const std::string& value) { return kEntryBytes + key.size() + value.size(); }

Bytes answer_of(bool there, std::string_view value) {
  Bytes answer;
  append(answer, static_cast<std::uint8_t>(there ? 1 : 0));
  append_text(answer, value);
  return answer;
}

}  // namespace

StoreServer::StoreServer(const std::string& host, int port) {
  std::string tried;
  for (const SocketAddress& address : resolve(host, port)) {
    listener_ = listen_on(address);
    if (listener_ >= 0) break;
    const std::string why = errno == EADDRNOTAVAIL ? "not an address of this machine, where rank 0 is" : std::strerror(errno);
    tried += fmt::format("{}{}: {}", tried.empty() ? "" : ", ", address.text(), why);
  }
  if (listener_ < 0) throw std::runtime_error(tried);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) {
    ::close(listener_);
    throw std::runtime_error(std::strerror(errno));
  }
  thread_ = std::thread([this] { run(); });
}

StoreServer::~StoreServer() {
  const std::uint64_t one = 1;
  (void)!::write(wake_, &one, sizeof(one));
  thread_.join();
  for (const Connection& connection : connections_) ::close(connection.fd);
  ::close(wake_);
  ::close(listener_);
}

// The thread.
void StoreServer::run() {
  while (true) {
    std::vector<pollfd> files = {{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const Connection& connection : connections_) {
      files.push_back({connection.fd, static_cast<short>(connection.out.empty() ? POLLIN : POLLOUT), 0});
    }
    if (::poll(files.data(), files.size(), -1) < 0) continue;
    if (files[0].revents != 0) return;
    auto file = files.begin() + 2;
    for (auto connection = connections_.begin(); connection != connections_.end(); ++file) {
      if (file->revents == 0 || serve(*connection, file->revents)) {
        ++connection;
        continue;
      }
      hang_up(*connection);
      connection = connections_.erase(connection);
    }
    if (files[1].revents != 0) accept_one();
  }
}

void StoreServer::hang_up(Connection& connection) {
  ::close(connection.fd);
  memory_ -= connection.in.size();
}

void StoreServer::accept_one() {
  const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    if (!would_block()) std::this_thread::sleep_for(kAcceptPause);  // out of files: it stays in the queue
    return;
  }
  if (connections_.size() >= kMaxConnections) {
    ::close(fd);
    return;
  }
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  connections_.push_back({fd, {}, {}});
}

// Returns whether the connection stays open.
bool StoreServer::serve(Connection& connection, short events) {
  if ((events & POLLIN) != 0 && !read_some(connection)) return false;
  if ((events & (POLLERR | POLLNVAL)) != 0 || ((events & POLLHUP) != 0 && (events & POLLIN) == 0)) return false;
  return write_some(connection) && answer_all(connection);
}

bool StoreServer::read_some(Connection& connection) {
  std::array<std::byte, 4096> buffer;
  const ssize_t got = ::recv(connection.fd, buffer.data(), buffer.size(), 0);
  if (got < 0) return would_block();
  if (memory_ + static_cast<std::size_t>(got) > kMaxStoreMemory) return false;
  append_bytes(connection.in, ByteView(buffer).first(static_cast<std::size_t>(got)));
  memory_ += static_cast<std::size_t>(got);
  return got > 0;
}

// Each answer is sent before the next request is read, so the pending data is bounded.
bool StoreServer::answer_all(Connection& connection) {
  while (connection.out.empty()) {
    ByteReader reader(connection.in);
    const auto size = reader.take<std::uint32_t>();
    if (!size) return true;
    if (*size > kMaxStoreBytes) return false;
    const auto request = reader.take_bytes(*size);
    if (!request) return true;
    bool good = true;
    const Bytes reply = answer(*request, good);
    if (!good) return false;
    append(connection.out, static_cast<std::uint32_t>(reply.size()));
    append_bytes(connection.out, reply);
    connection.in.erase(connection.in.begin(), connection.in.begin() + sizeof(std::uint32_t) + *size);
    memory_ -= sizeof(std::uint32_t) + *size;
    if (!write_some(connection)) return false;
  }
  return true;
}

bool StoreServer::write_some(Connection& connection) {
  if (connection.out.empty()) return true;
  const ssize_t sent = ::send(connection.fd, connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
  if (sent < 0) return would_block();
  connection.out.erase(connection.out.begin(), connection.out.begin() + sent);
  return true;
}

Bytes StoreServer::answer(ByteView request, bool& good) {
  ByteReader reader(request);
  const auto operation = reader.take<std::uint8_t>();
  const auto key_size = reader.take<std::uint32_t>();
  const auto key_bytes = reader.take_bytes(key_size.value_or(0));
  good = operation && key_size && key_bytes;
  if (!good) return {};
  const std::string key = to_text(*key_bytes);
  const auto found = values_.find(key);
  const bool there = found != values_.end();
  switch (static_cast<StoreOperation>(*operation)) {
    case StoreOperation::kSet: good = keep(key, to_text(reader.rest())); return answer_of(true, "");
    case StoreOperation::kGet: return answer_of(there, there ? found->second : "");
    case StoreOperation::kAdd: {
      const std::uint64_t sum =
          static_cast<std::uint64_t>(there ? number_of(found->second) : 0) + static_cast<std::uint64_t>(number_of(to_text(reader.rest())));
      const std::string text = fmt::to_string(static_cast<std::int64_t>(sum));
      good = keep(key, text);
      return answer_of(true, text);
    }
    case StoreOperation::kCompareSet: return compare_set(key, reader, good);
    case StoreOperation::kDelete:
      if (there) memory_ -= memory_of(key, found->second);
      return answer_of(values_.erase(key) > 0, "");
    case StoreOperation::kCount: return answer_of(true, fmt::to_string(values_.size()));
  }
  good = false;
  return {};
}

// As c10d has it: a key that is not there equals an empty value.
Bytes StoreServer::compare_set(const std::string& key, ByteReader& reader, bool& good) {
  const auto size = reader.take<std::uint32_t>();
  const auto expected = reader.take_bytes(size.value_or(0));
  good = size && expected;
  if (!good) return {};
  const auto found = values_.find(key);
  if (found == values_.end() && *size > 0) return answer_of(false, to_text(*expected));
  if (found != values_.end() && found->second != to_text(*expected)) return answer_of(true, found->second);
  const std::string value = to_text(reader.rest());
  good = keep(key, value);
  return answer_of(true, value);
}

// Returns whether there was room for it.
bool StoreServer::keep(const std::string& key, std::string value) {
  const auto found = values_.find(key);
  const std::size_t before = found == values_.end() ? 0 : memory_of(key, found->second);
  const std::size_t after = memory_of(key, value);
  if (memory_ - before + after > kMaxStoreMemory) return false;
  memory_ += after - before;
  values_.insert_or_assign(key, std::move(value));
  return true;
}

}  // namespace epipe::transport
