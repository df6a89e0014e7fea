// Ways come to who waits for them; waiting ends when the client has begun another attempt.
#include "epipe/serve/channel_broker.h"

#include <gtest/gtest.h>

#include <future>

#include "epipe/base/clock.h"
#include "epipe/transport/inproc/inproc.h"

namespace epipe::serve {
namespace {

using transport::Link;
using transport::make_inproc_link;
using transport::Timeout;

constexpr Timeout kLong{20'000};

TEST(ChannelBroker, GivesTheWayThatWasAskedFor) {
  ChannelBroker desk;
  auto [ours, other] = make_inproc_link(1);
  Link* const expected = ours.get();
  auto taken = std::async(std::launch::async, [&] { return desk.take({7, 1, 2}, kLong); });
  desk.put({7, 0, 2}, std::move(other));
  desk.put({7, 1, 2}, std::move(ours));
  EXPECT_EQ(taken.get().get(), expected);
}

TEST(ChannelBroker, SaysWhoDidNotCome) {
  ChannelBroker desk;
  EXPECT_THROW(desk.take({7, 1, 2}, Timeout(10)), transport::TimedOut);
}

TEST(ChannelBroker, DoesNotWaitForAnAttemptThatIsOver) {
  ChannelBroker desk;
  const Stopwatch watch;
  auto waiting = std::async(std::launch::async, [&] { return desk.take({7, 1, 2}, kLong); });
  desk.give_up();
  EXPECT_THROW(waiting.get(), transport::ConnectionLost);
  EXPECT_THROW(desk.take({7, 2, 2}, kLong), transport::ConnectionLost);  // who was about to
  EXPECT_LT(watch.seconds(), 10.0);
  auto ways = make_inproc_link(1);
  desk.put({8, 1, 2}, std::move(ways.first));  // of the next one, before it is served
  desk.begin();
  EXPECT_NE(desk.take({8, 1, 2}, kLong), nullptr);
}

}  // namespace
}  // namespace epipe::serve
