// Ways come to who waits for them; waiting ends when the client has begun another attempt.
#include "epipe/serve/way_desk.h"

#include <gtest/gtest.h>

#include <future>

#include "epipe/base/clock.h"
#include "epipe/transport/inproc/inproc.h"

namespace epipe::serve {
namespace {

using transport::Link;
using transport::make_inproc_link;
using transport::Patience;

constexpr Patience kLong{20'000};

TEST(WayDesk, GivesTheWayThatWasAskedFor) {
  WayDesk desk;
  auto [ours, other] = make_inproc_link(1);
  Link* const expected = ours.get();
  auto taken = std::async(std::launch::async, [&] { return desk.take({7, 1, 2}, kLong); });
  desk.put({7, 0, 2}, std::move(other));
  desk.put({7, 1, 2}, std::move(ours));
  EXPECT_EQ(taken.get().get(), expected);
}

TEST(WayDesk, SaysWhoDidNotCome) {
  WayDesk desk;
  EXPECT_THROW(desk.take({7, 1, 2}, Patience(10)), transport::TimedOut);
}

TEST(WayDesk, DoesNotWaitForAnAttemptThatIsOver) {
  WayDesk desk;
  const Stopwatch watch;
  auto waiting = std::async(std::launch::async, [&] { return desk.take({7, 1, 2}, kLong); });
  desk.give_up();
  EXPECT_THROW(waiting.get(), transport::Lost);
  EXPECT_THROW(desk.take({7, 2, 2}, kLong), transport::Lost);  // who was about to
  EXPECT_LT(watch.seconds(), 10.0);
  auto ways = make_inproc_link(1);
  desk.put({8, 1, 2}, std::move(ways.first));  // of the next one, before it is served
  desk.begin();
  EXPECT_NE(desk.take({8, 1, 2}, kLong), nullptr);
}

}  // namespace
}  // namespace epipe::serve
