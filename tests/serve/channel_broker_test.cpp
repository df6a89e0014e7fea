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
  ChannelBroker broker;
  auto [ours, other] = make_inproc_link(1);
  Link* const expected = ours.get();
  auto taken = std::async(std::launch::async, [&] { return broker.take({7, 1, 2}, kLong); });
  broker.put({7, 0, 2}, std::move(other));
  broker.put({7, 1, 2}, std::move(ours));
  EXPECT_EQ(taken.get().get(), expected);
}

TEST(ChannelBroker, SaysWhoDidNotCome) {
  ChannelBroker broker;
  EXPECT_THROW(broker.take({7, 1, 2}, Timeout(10)), transport::TimedOut);
}

TEST(ChannelBroker, DoesNotWaitForAnAttemptThatIsOver) {
  ChannelBroker broker;
  const Stopwatch watch;
  auto waiting = std::async(std::launch::async, [&] { return broker.take({7, 1, 2}, kLong); });
  broker.give_up();
  EXPECT_THROW(waiting.get(), transport::ConnectionLost);
  EXPECT_THROW(broker.take({7, 2, 2}, kLong), transport::ConnectionLost);  // who was about to
  EXPECT_LT(watch.seconds(), 10.0);
  auto links = make_inproc_link(1);
  broker.put({8, 1, 2}, std::move(links.first));  // of the next one, before it is served
  broker.begin();
  EXPECT_NE(broker.take({8, 1, 2}, kLong), nullptr);
}

}  // namespace
}  // namespace epipe::serve
