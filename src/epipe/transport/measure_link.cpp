#include "epipe/transport/measure_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <thread>

#include "epipe/base/clock.h"
#include "epipe/base/cpu_time.h"
#include "epipe/base/median.h"
#include "epipe/base/other_work.h"
#include "epipe/base/queue.h"

namespace epipe::transport {
namespace {

// A request of the measuring side, 13 bytes: u8 kind, u64 size, u32 count.
enum class Kind : std::uint8_t {
  kEcho = 1,    // each message is echoed
  kAnswer = 2,  // each message is answered by an empty one
  kTake = 3,    // all messages are answered by one empty one
  kGive = 4,    // the server sends the messages
};
struct Request {
  Kind kind = Kind::kEcho;
  std::uint64_t size = 0;
  std::uint32_t count = 0;
};
constexpr std::uint32_t kMaxCount = 10'000;  // of one request
constexpr int kRoundTrips = 5;               // that are asked for at once

Bytes to_bytes(const Request& request) {
  Bytes out;
  append(out, request.kind);
  append(out, request.size);
  append(out, request.count);
  return out;
}

Request to_request(const Bytes& bytes) {
  ByteReader reader(bytes);
  const auto kind = reader.take<std::uint8_t>();
  const auto size = reader.take<std::uint64_t>();
  const auto count = reader.take<std::uint32_t>();
  const bool fits =
      kind && size && count && reader.rest().empty() && *kind >= 1 && *kind <= 4 && *size <= kMaxMeasuredBytes && *count <= kMaxCount;
  if (!fits) throw std::runtime_error("expected a request to measure a link, got something else");
  return {static_cast<Kind>(*kind), *size, *count};
}

Bytes pattern(std::uint64_t size) {
  Bytes out(size);
  std::uint32_t state = 1;
  for (auto& value : out) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<std::byte>(state >> 24);
  }
  return out;
}

Bytes recv_sized(Link& link, std::uint64_t size, Timeout timeout) {
  Bytes message = link.recv(timeout);
  if (message.size() != size) throw std::runtime_error(fmt::format("expected a message of {} bytes, got {}", size, message.size()));
  return message;
}

void serve_one(Link& link, const Request& request, Timeout timeout) {
  for (std::uint32_t k = 0; k < request.count; ++k) {
    if (request.kind == Kind::kGive) {
      link.send(Bytes(request.size));
      continue;
    }
    Bytes message = recv_sized(link, request.size, timeout);
    if (request.kind == Kind::kEcho) link.send(std::move(message));
    if (request.kind == Kind::kAnswer) link.send({});
  }
  if (request.kind == Kind::kTake) link.send({});
}

class Measurement {
 public:
  Measurement(Link& link, std::uint64_t size, double seconds, Timeout timeout)
      : link_(link), size_(size), seconds_(seconds), timeout_(timeout) {}

  LinkSpeed run() {
    verify();
    LinkSpeed speed;
    speed.bytes = size_;
    time_round_trips(speed);
    speed.messages = static_cast<int>(std::clamp(seconds_ / std::max(speed.round_trip_seconds, 1e-6), 2.0, 10'000.0));
    const double before = process_cpu_seconds();
    speed.send_MBps = rate(speed.messages, [&] { send_train(speed.messages); });
    speed.recv_MBps = rate(speed.messages, [&] { recv_train(speed.messages); });
    speed.cpu_seconds = (process_cpu_seconds() - before) / (2 * speed.messages);
    return speed;
  }

 private:
  void ask(Kind kind, int count) { link_.send(to_bytes({kind, size_, static_cast<std::uint32_t>(count)})); }

  void verify() {
    const Bytes sent = pattern(size_);
    ask(Kind::kEcho, 1);
    link_.send(sent);
    if (link_.recv(timeout_) != sent) throw std::runtime_error(fmt::format("{} bytes came back changed", size_));
  }

  void time_round_trips(LinkSpeed& speed) {
    std::vector<double> times;
    std::vector<double> work;
    for (const Stopwatch watch; times.empty() || (watch.seconds() < seconds_ && times.size() < 10'000);) {
      ask(Kind::kAnswer, kRoundTrips);
      for (int trip = 0; trip < kRoundTrips; ++trip) {
        other_work_.run();
        const double before = process_cpu_seconds();
        times.push_back(one_round_trip());
        work.push_back((process_cpu_seconds() - before) / 2);
      }
    }
    speed.lone_cpu_seconds = median(std::move(work));
    speed.round_trip_seconds = median(std::move(times));
  }

  double one_round_trip() {
    Bytes message(size_);
    const Stopwatch watch;
    link_.send(std::move(message));
    recv_sized(link_, 0, timeout_);
    return watch.seconds();
  }

  void send_train(int count) {
    ask(Kind::kTake, count);
    for (int k = 0; k < count; ++k) link_.send(Bytes(size_));
    recv_sized(link_, 0, timeout_);
  }

  void recv_train(int count) {
    ask(Kind::kGive, count);
    for (int k = 0; k < count; ++k) recv_sized(link_, size_, timeout_);
  }

  template <typename Train>
  double rate(int count, const Train& train) {
    const Stopwatch watch;
    train();
    return static_cast<double>(size_) * count / watch.seconds() / 1e6;
  }

  Link& link_;
  const std::uint64_t size_;
  const double seconds_;
  const Timeout timeout_;
  OtherWork other_work_;
};

}  // namespace

void serve_measurement(Link& link, Timeout timeout) {
  try {
    while (true) serve_one(link, to_request(link.recv(timeout)), timeout);
  } catch (const ConnectionLost&) {
    // The measuring side is done.
  } catch (const Closed&) {
  }
}

std::vector<LinkSpeed> measure_link(Link& link, const std::vector<std::size_t>& sizes, double seconds, Timeout timeout) {
  std::vector<LinkSpeed> speeds;
  for (const auto size : sizes) {
    if (size > kMaxMeasuredBytes) {
      throw std::invalid_argument(fmt::format("expected messages of at most {} bytes, got {}", kMaxMeasuredBytes, size));
    }
    speeds.push_back(Measurement(link, size, seconds, timeout).run());
  }
  return speeds;
}

}  // namespace epipe::transport
