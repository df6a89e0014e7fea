#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "epipe/base/clock.h"
#include "epipe/transport/measure_link.h"
#include "support/fabrics.h"

namespace epipe::transport {
namespace {

using namespace std::chrono_literals;

// EPIPE_MEASURE=1 prints the speed of every transport for messages of 1 KiB to 64 MiB.
std::vector<std::size_t> sizes() {
  if (std::getenv("EPIPE_MEASURE") == nullptr) return {0, 1000, 100'000};
  return {1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
}

class Measuring : public ::testing::TestWithParam<testing::Transport> {};

TEST_P(Measuring, GivesTheSpeedOfEverySize) {
  if (!GetParam().available()) GTEST_SKIP() << GetParam().name << " is not in this build";
  const auto fabric = GetParam().make();
  auto ends = fabric->connect();
  std::thread server([&link = *ends.second] { serve_measurement(link, 20s); });
  const auto speeds = measure_link(*ends.first, sizes(), std::getenv("EPIPE_MEASURE") == nullptr ? 0.01 : 0.3, 20s);
  ASSERT_EQ(speeds.size(), sizes().size());
  for (std::size_t k = 0; k < speeds.size(); ++k) {
    const auto& speed = speeds[k];
    EXPECT_EQ(speed.bytes, sizes()[k]);
    EXPECT_GT(speed.round_trip_seconds, 0);
    EXPECT_EQ(speed.send_MBps > 0, speed.bytes > 0);
    EXPECT_EQ(speed.recv_MBps > 0, speed.bytes > 0);
    std::printf("%-10s %9zu bytes %9.1f us round trip %8.1f MB/s out %8.1f MB/s in\n", GetParam().name.c_str(), speed.bytes,
                1e6 * speed.round_trip_seconds, speed.send_MBps, speed.recv_MBps);
  }
  ends.first->close();
  server.join();
}

TEST(MeasuringServer, AServerThatIsAskedForNonsenseSaysSo) {
  auto [a, b] = make_inproc_link(2);
  a->send(Bytes(13));
  EXPECT_THROW(serve_measurement(*b, 1s), std::runtime_error);
}

TEST(MeasuringServer, GivesNothingThatWasInMemoryBefore) {
  auto [a, b] = make_inproc_link(4);
  Bytes request;  // one message of 50,000 bytes
  append(request, std::uint8_t{4});
  append(request, std::uint64_t{50'000});
  append(request, std::uint32_t{1});
  a->send(std::move(request));
  { const std::vector<char> secret(50'000, 'S'); }
  EXPECT_THROW(serve_measurement(*b, 10ms), TimedOut);
  EXPECT_TRUE(all_zeros(a->recv(1s)));
}

TEST(MeasuringServer, RefusesMessagesThatAreTooLargeAndRequestsThatAreTooLong) {
  for (const auto& [size, count] : {std::pair{std::uint64_t{kMaxMeasuredBytes} + 1, 1U}, {std::uint64_t{1}, 1'000'000U}}) {
    auto [a, b] = make_inproc_link(2);
    Bytes request;
    append(request, std::uint8_t{1});
    append(request, size);
    append(request, count);
    a->send(std::move(request));
    EXPECT_THROW(serve_measurement(*b, 1s), std::runtime_error);
  }
}

TEST(MeasuringServer, AServerWithoutAClientStops) {
  auto [a, b] = make_inproc_link(2);
  EXPECT_THROW(serve_measurement(*b, 10ms), TimedOut);
}

const auto kMeasuredName = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Over, Measuring, ::testing::ValuesIn(testing::transports()), kMeasuredName);

}  // namespace
}  // namespace epipe::transport
