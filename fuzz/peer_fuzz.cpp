// What reaches a process beside commands and frames: any bytes are a request, a list or a named error. The first byte says who gets the
// rest.
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include "epipe/boundary/reused_frames.h"
#include "epipe/monitor/http_address.h"
#include "epipe/monitor/http_request.h"
#include "epipe/transport/c10d/interface.h"
#include "epipe/transport/c10d/store_server.h"
#include "epipe/transport/group_config.h"
#include "epipe/transport/measure_link.h"

namespace {

using namespace epipe;

void check_http_request(std::string_view text) {
  static const auto loopback = monitor::parse_http_address("127.0.0.1:9100");
  const auto request = monitor::parse_http_request(text);
  if (!request && request.error().message.empty()) std::abort();
  if (!request) return;
  if (request.value().path[0] != '/' || text.size() < request.value().path.size()) std::abort();
  const bool local = monitor::may_be_asked_as(request.value().host, loopback);
  if (local && request.value().host.find("example.org") != std::string::npos) std::abort();
}

void check_reused(ByteView bytes) {
  const auto micro_batch = boundary::read_reused(bytes);
  if (micro_batch) {
    const Bytes again = to_bytes(micro_batch.value());
    if (!std::ranges::equal(again, bytes)) std::abort();
  }
  if (const auto held = boundary::read_held(bytes); held && !std::ranges::equal(to_bytes(held.value()), bytes)) std::abort();
}

// Requests as they come, until the measuring side is gone; of what is sent nothing is kept.
class Scripted final : public transport::Link {
 public:
  explicit Scripted(ByteView script) : script_(script) {}
  void send(Bytes message) override {
    taken_ += message.size();
    if (++sent_ > 3 || taken_ > (1U << 20U)) throw transport::ConnectionLost("enough");
  }
  Bytes recv(transport::Timeout) override {
    const auto size = script_.take<std::uint8_t>();
    const auto message = size ? script_.take_bytes(*size) : std::nullopt;
    if (!message) throw transport::ConnectionLost("the script is over");
    return {message->begin(), message->end()};
  }
  void close() override {}

 private:
  ByteReader script_;
  int sent_ = 0;
  std::size_t taken_ = 0;
};

void check_measurement(ByteView script) {
  Scripted link(script);
  try {
    transport::serve_measurement(link, transport::kNoTimeout);
  } catch (const std::runtime_error& error) {
    if (std::string_view(error.what()).empty()) std::abort();
  }
}

// One connection of a rank: whatever it says, the store answers whole messages until it hangs up.
void check_store(ByteView said) {
  static const int port = transport::free_port();
  const transport::StoreServer store("127.0.0.1", port);
  const auto address = transport::resolve("127.0.0.1", port).at(0);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) std::abort();
  if (::connect(fd, address.get(), address.size) != 0) {  // thousands of connections a second use up the ports for a while
    if (errno != EADDRNOTAVAIL) std::abort();
    ::close(fd);
    return;
  }
  (void)!::send(fd, said.data(), said.size(), MSG_NOSIGNAL);
  ::shutdown(fd, SHUT_WR);
  const timeval patience{10, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  const linger at_once{1, 0};  // thousands of connections a minute: none lingers
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  Bytes heard;
  std::array<std::byte, 4096> piece;
  ssize_t got = 0;
  while ((got = ::recv(fd, piece.data(), piece.size(), 0)) > 0) append_bytes(heard, ByteView(piece).first(static_cast<std::size_t>(got)));
  if (got < 0 && errno != ECONNRESET) std::abort();  // it did not hang up
  ::close(fd);
  ByteReader answers(heard);
  while (const auto size = answers.take<std::uint32_t>()) {
    if (*size > transport::kMaxStoreBytes + 1) std::abort();
    if (!answers.take_bytes(*size)) break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const epipe::ByteView bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0: check_http_request({reinterpret_cast<const char*>(data) + 1, size - 1}); break;
    case 1: check_reused(bytes); break;
    case 2: check_measurement(bytes); break;
    case 3: check_store(bytes); break;
  }
  return 0;
}
