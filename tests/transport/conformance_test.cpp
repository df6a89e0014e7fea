#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "epipe/base/clock.h"
#include "support/fabrics.h"

// What every link promises, whatever carries it.
namespace epipe::transport {
namespace {

using namespace std::chrono_literals;
using testing::Ends;

Bytes message(std::size_t bytes, unsigned seed) {
  Bytes out(bytes);
  std::uint32_t state = seed * 2654435761U + 1;
  for (auto& value : out) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<std::byte>(state >> 24);
  }
  return out;
}

// Whether the link says that it is over: closed, or the peer is gone.
template <typename Use>
::testing::AssertionResult is_over(const Use& use) {
  try {
    use();
  } catch (const Closed&) {
    return ::testing::AssertionSuccess();
  } catch (const ConnectionLost&) {
    return ::testing::AssertionSuccess();
  } catch (const std::exception& other) {
    return ::testing::AssertionFailure() << other.what();
  }
  return ::testing::AssertionFailure() << "nothing was thrown";
}

class EveryLink : public ::testing::TestWithParam<testing::Transport> {
 protected:
  void SetUp() override {
    if (!GetParam().available()) GTEST_SKIP() << GetParam().name << " is not in this build";
    fabric_ = GetParam().make();
  }
  Ends connect() { return fabric_->connect(); }

  std::unique_ptr<testing::Fabric> fabric_;
};

TEST_P(EveryLink, DeliversMessagesOnceAndInOrder) {
  auto [a, b] = connect();
  std::thread sender([&a = a] {
    for (unsigned k = 0; k < 200; ++k) a->send(message(k * 37 % 5000, k));
  });
  for (unsigned k = 0; k < 200; ++k) ASSERT_EQ(b->recv(20s), message(k * 37 % 5000, k)) << k;
  sender.join();
  EXPECT_THROW(b->recv(20ms), TimedOut);
}

TEST_P(EveryLink, CarriesEveryKindOfSize) {
  auto [a, b] = connect();
  const std::vector<std::size_t> sizes{
      0,          1, 7, 65527, 65528, 65529, 65536, (1 << 20) - 9, (1 << 20) - 8, (1 << 20) - 7, 1 << 20, (2 << 20) - 8, (2 << 20) - 7,
      12'345'678, 0};
  std::thread sender([&a = a, &sizes] {
    for (const auto size : sizes) a->send(message(size, static_cast<unsigned>(size)));
  });
  for (const auto size : sizes) ASSERT_EQ(b->recv(20s), message(size, static_cast<unsigned>(size))) << size;
  sender.join();
}

TEST_P(EveryLink, CarriesMoreThanAHundredMegabytes) {
  auto [a, b] = connect();
  const Bytes big = message(120'000'000, 5);
  std::thread sender([&a = a, &big] { a->send(big); });
  EXPECT_TRUE(b->recv(60s) == big);
  sender.join();
}

TEST_P(EveryLink, CarriesBothDirectionsAtOnce) {
  auto [a, b] = connect();
  const auto send_all = [](Link& link, unsigned seed) {
    for (unsigned k = 0; k < 40; ++k) link.send(message(200'000, seed + k));
  };
  const auto recv_all = [](Link& link, unsigned seed) {
    for (unsigned k = 0; k < 40; ++k) EXPECT_TRUE(link.recv(20s) == message(200'000, seed + k)) << k;
  };
  std::thread a_sends([&, &link = *a] { send_all(link, 1000); });
  std::thread b_sends([&, &link = *b] { send_all(link, 2000); });
  std::thread a_receives([&, &link = *a] { recv_all(link, 2000); });
  recv_all(*b, 1000);
  a_sends.join();
  b_sends.join();
  a_receives.join();
}

TEST_P(EveryLink, HoldsAMessageForAReaderThatIsNotThereYet) {
  auto [a, b] = connect();
  a->send(message(100, 1));
  b->send(message(100, 2));
  EXPECT_EQ(a->recv(20s), message(100, 2));
  EXPECT_EQ(b->recv(20s), message(100, 1));
}

TEST_P(EveryLink, SurvivesATimeOut) {
  auto [a, b] = connect();
  const Stopwatch watch;
  EXPECT_THROW(b->recv(100ms), TimedOut);
  EXPECT_GE(watch.seconds(), 0.09);
  EXPECT_LT(watch.seconds(), 5.0);
  EXPECT_THROW(b->recv(0ms), TimedOut);
  a->send(message(10, 3));
  EXPECT_EQ(b->recv(20s), message(10, 3));
}

TEST_P(EveryLink, CloseWakesTheReadersOfBothSides) {
  auto [a, b] = connect();
  std::thread reader([&a = a] { EXPECT_THROW(a->recv(kNoTimeout), Closed); });
  std::thread peer([&b = b] { EXPECT_TRUE(is_over([&] { b->recv(kNoTimeout); })); });
  std::this_thread::sleep_for(50ms);
  const Stopwatch watch;
  a->close();
  reader.join();
  peer.join();
  EXPECT_LT(watch.seconds(), 5.0);
  a->close();
  EXPECT_THROW(a->send(message(1, 1)), Closed);
  EXPECT_THROW(a->recv(10ms), Closed);
  EXPECT_TRUE(is_over([&b = b] { b->recv(20s); }));
}

// Fills the link until its sender waits.
std::thread fill(Link& link, std::atomic<int>& sent) {
  return std::thread([&link, &sent] {
    EXPECT_TRUE(is_over([&] {
      while (true) {
        link.send(message(3'000'000, 1));
        ++sent;
      }
    }));
  });
}

void wait_until_full(const std::atomic<int>& sent) {
  for (int before = -1; before != sent; std::this_thread::sleep_for(200ms)) before = sent;
}

TEST_P(EveryLink, ASenderWaitsWhileTheLinkIsFull) {
  auto [a, b] = connect();
  std::atomic<int> sent = 0;
  std::thread sender = fill(*a, sent);
  wait_until_full(sent);
  EXPECT_LT(sent, 50);
  const int before = sent;
  for (int k = 0; k < before + 5; ++k) b->recv(20s);
  wait_until_full(sent);
  EXPECT_GT(sent, before);
  a->close();
  sender.join();
}

TEST_P(EveryLink, ClosingWhileFullWakesTheSender) {
  for (const bool by_peer : {false, true}) {
    auto [a, b] = connect();
    std::atomic<int> sent = 0;
    std::thread sender = fill(*a, sent);
    wait_until_full(sent);
    const Stopwatch watch;
    (by_peer ? b : a)->close();
    sender.join();
    EXPECT_LT(watch.seconds(), 5.0) << (by_peer ? "closed by the peer" : "closed here");
  }
}

TEST_P(EveryLink, ClosingWhileBothSidesAreFullWakesBoth) {
  auto [a, b] = connect();
  std::atomic<int> a_sent = 0;
  std::atomic<int> b_sent = 0;
  std::thread a_sends = fill(*a, a_sent);
  std::thread b_sends = fill(*b, b_sent);
  wait_until_full(a_sent);
  wait_until_full(b_sent);
  const Stopwatch watch;
  a->close();
  a_sends.join();
  b_sends.join();
  EXPECT_LT(watch.seconds(), 5.0);
}

TEST_P(EveryLink, ManyLinksWorkAtOnceAndDoNotMix) {
  constexpr int kLinks = 16;
  std::vector<Ends> links;
  for (int k = 0; k < kLinks; ++k) links.push_back(connect());
  std::vector<std::thread> threads;
  for (int k = 0; k < kLinks; ++k) {
    const auto seed = static_cast<unsigned>(k);
    threads.emplace_back([&link = *links[k].first, seed] {
      for (unsigned i = 0; i < 30; ++i) link.send(message(20'000, 100 * seed + i));
      EXPECT_EQ(link.recv(20s), message(seed, seed));
    });
    threads.emplace_back([&link = *links[k].second, seed] {
      for (unsigned i = 0; i < 30; ++i) EXPECT_TRUE(link.recv(20s) == message(20'000, 100 * seed + i)) << seed << " " << i;
      link.send(message(seed, seed));
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_P(EveryLink, AFullLinkDoesNotStopTheOthers) {
  auto full = connect();
  auto other = connect();
  std::atomic<int> sent = 0;
  std::thread sender = fill(*full.first, sent);
  wait_until_full(sent);
  other.first->send(message(1'000'000, 8));
  EXPECT_TRUE(other.second->recv(20s) == message(1'000'000, 8));
  full.first->close();
  sender.join();
  other.second->send(message(10, 9));
  EXPECT_EQ(other.first->recv(20s), message(10, 9));
}

TEST_P(EveryLink, LinksComeAndGo) {
  for (unsigned k = 0; k < 30; ++k) {
    auto [a, b] = connect();
    a->send(message(k, k));
    EXPECT_EQ(b->recv(20s), message(k, k));
    if (k % 3 == 0) a->close();
    if (k % 3 == 1) b->close();
  }
}

// Links between processes deliver what was sent before the end; a queue in memory does not.
class EveryWire : public EveryLink {};

TEST_P(EveryWire, WhatWasSentBeforeCloseArrives) {
  auto [a, b] = connect();
  a->send(message(5'000, 1));
  a->close();
  EXPECT_EQ(b->recv(20s), message(5'000, 1));
  EXPECT_THROW(b->recv(20s), ConnectionLost);
  EXPECT_THROW(b->send(message(1, 1)), ConnectionLost);
}

TEST_P(EveryWire, WhatWasSentBeforeALinkWasDestroyedArrives) {
  auto [a, b] = connect();
  b->send(message(3'000'000, 1));
  b.reset();
  EXPECT_TRUE(a->recv(20s) == message(3'000'000, 1));
  EXPECT_THROW(a->recv(20s), ConnectionLost);
}

std::vector<testing::Transport> wires() {
  auto all = testing::transports();
  all.erase(all.begin());
  return all;
}

const auto kTransportName = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Over, EveryLink, ::testing::ValuesIn(testing::transports()), kTransportName);
INSTANTIATE_TEST_SUITE_P(Over, EveryWire, ::testing::ValuesIn(wires()), kTransportName);

}  // namespace
}  // namespace epipe::transport
