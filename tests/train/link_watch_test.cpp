// When a link counts as changed.
#include "epipe/train/link_watch.h"

#include <gtest/gtest.h>

#include <random>

namespace epipe::train {
namespace {

using session::LinkMeasurement;

constexpr double kMbit = 1e6 / 8;

// A probe whenever one is due, over steps of some length.
class Driven {
 public:
  explicit Driven(double step_seconds = 0.5, double probe_seconds = 0.1) : step_seconds_(step_seconds), probe_seconds_(probe_seconds) {}

  // Trains so long on a link of these rates. Returns how often it counted as changed.
  int train(double seconds, double up, double down) {
    return train(seconds, [&] { return LinkMeasurement{up, down, 0.001}; });
  }
  template <typename Link>
  int train(double seconds, const Link& link) {
    int changes = 0;
    for (const double end = now_ + seconds; now_ < end; now_ += step_seconds_, ++step_) {
      if (!watch_.is_due(now_)) continue;
      now_ += probe_seconds_;
      probing_ += probe_seconds_;
      const bool known = watch_.known().has_value();
      if (watch_.take(link(), step_, now_, probe_seconds_) && known) {
        ++changes;
        changed_at_ = now_;
      }
    }
    return changes;
  }

  LinkWatch& watch() { return watch_; }
  double now() const { return now_; }
  double changed_at() const { return changed_at_; }
  double probing() const { return probing_; }
  double step_seconds() const { return step_seconds_; }

 private:
  LinkWatch watch_;
  double step_seconds_;
  double probe_seconds_;
  double now_ = 0;
  double changed_at_ = 0;
  double probing_ = 0;
  std::uint64_t step_ = 0;
};

TEST(LinkWatch, ADropThatLastsIsNoticedOnceAndSoIsTheWayBack) {
  Driven driven;
  EXPECT_EQ(driven.train(60, 100 * kMbit, 100 * kMbit), 0);
  const double dropped = driven.now();
  EXPECT_EQ(driven.train(60, 5 * kMbit, 5 * kMbit), 1);
  EXPECT_LT(driven.changed_at() - dropped, 30);
  EXPECT_NEAR(driven.watch().known()->up, 5 * kMbit, 1);
  EXPECT_EQ(driven.train(60, 100 * kMbit, 100 * kMbit), 1);
  EXPECT_NEAR(driven.watch().known()->down, 100 * kMbit, 1);
}

TEST(LinkWatch, OneDirectionAloneCounts) {
  Driven driven;
  driven.train(30, 10 * kMbit, 100 * kMbit);
  EXPECT_EQ(driven.train(60, 10 * kMbit, 60 * kMbit), 1);
  EXPECT_EQ(driven.train(60, 16 * kMbit, 60 * kMbit), 1);
}

TEST(LinkWatch, ChangesBelowTheFactorAreNone) {
  Driven driven;
  driven.train(30, 100 * kMbit, 100 * kMbit);
  for (const double rate : {70, 140, 100, 149, 67, 100}) EXPECT_EQ(driven.train(60, rate * kMbit, rate * kMbit), 0) << rate;
}

TEST(LinkWatch, AChangeMustLast) {
  Driven driven;
  driven.train(30, 100 * kMbit, 100 * kMbit);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(driven.train(4, 5 * kMbit, 5 * kMbit), 0);
    EXPECT_EQ(driven.train(20, 100 * kMbit, 100 * kMbit), 0);
  }
  Driven slow(/*step_seconds=*/30);  // long in seconds, but not in steps
  slow.train(300, 100 * kMbit, 100 * kMbit);
  EXPECT_EQ(slow.train(100, 5 * kMbit, 5 * kMbit), 0);
  EXPECT_EQ(slow.train(100, 5 * kMbit, 5 * kMbit), 1);
}

TEST(LinkWatch, ALinkThatJumpsAboutDoesNotMakeItFlap) {
  Driven driven;
  std::mt19937 generator(3);
  const auto jumping = [&] {
    const double rate = std::uniform_int_distribution<int>(0, 1)(generator) == 0 ? 5 : 100;
    return LinkMeasurement{rate * kMbit, rate * kMbit, 0.001};
  };
  EXPECT_LT(driven.train(3600, jumping), 40) << "one in 90 s at most, each after probes in a row that agreed";
}

TEST(LinkWatch, ProbesTakeOnePercentOfTheTimeUnlessSomethingChanges) {
  for (const double probe_seconds : {0.02, 0.2, 1.0}) {
    Driven driven(0.5, probe_seconds);
    driven.train(1800, 100 * kMbit, 100 * kMbit);
    EXPECT_LT(driven.probing() / driven.now(), 0.011 + 2 * probe_seconds / 1800) << probe_seconds;
  }
}

TEST(LinkWatch, ALostConnectionForgetsWhatWasToBeConfirmed) {
  Driven driven;
  driven.train(60, 100 * kMbit, 100 * kMbit);
  LinkWatch& watch = driven.watch();
  const LinkMeasurement slow{5 * kMbit, 5 * kMbit, 0.001};
  EXPECT_FALSE(watch.take(slow, 1000, 1000, 0.1));
  EXPECT_FALSE(watch.take(slow, 1004, 1004, 0.1));
  watch.forget();
  EXPECT_FALSE(watch.take(slow, 1010, 1010, 0.1)) << "it would have been the third";
}

TEST(LinkWatch, ARunThatGoesOnComparesWithTheLinkItsRatesWereChosenFor) {
  Driven driven;
  driven.watch().resume({100 * kMbit, 100 * kMbit, 0.001});
  EXPECT_EQ(driven.train(60, 100 * kMbit, 100 * kMbit), 0);
  EXPECT_EQ(driven.train(60, 5 * kMbit, 5 * kMbit), 1);
}

TEST(LinkWatch, ProbesAreAsLongAsTheLinkIsFastAndFar) {
  LinkWatch watch;
  EXPECT_EQ(watch.probe_bytes(0), 65'536U) << "before anything is known";
  EXPECT_EQ(watch.probe_bytes(1), 16'384U);
  EXPECT_NEAR(static_cast<double>(watch.probe_bytes(100 * kMbit)), 0.05 * 100 * kMbit, 1);
  EXPECT_EQ(watch.probe_bytes(1e12), std::uint64_t{1} << 21);
  watch.take({1e6, 1e6, 0.2}, 0, 0, 1);
  EXPECT_NEAR(static_cast<double>(watch.probe_bytes(1e6)), 4e5, 1) << "twice the round trip";
}

}  // namespace
}  // namespace epipe::train
