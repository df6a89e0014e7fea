#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "epipe/base/clock.h"
#include "epipe/base/queue.h"
#include "epipe/transport/c10d/liveness.h"
#include "epipe/transport/measure_link.h"
#include "support/child.h"
#include "support/fabrics.h"

namespace epipe::transport {
namespace {

using namespace std::chrono_literals;
using testing::Child;

GroupConfig config_of(int rank, int size, int port) {
  GroupConfig config;
  config.rank = rank;
  config.size = size;
  config.master_port = port;
  config.timeout = 20s;
  return config;
}

// Runs `work` as every rank of a group, each in a thread. Reports what they throw.
void as_group(int size, const std::function<void(Group&)>& work) {
  const int port = free_port();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&work, rank, size, port] {
      try {
        const auto group = make_group(config_of(rank, size, port));
        work(*group);
        group->key_values().put("done/" + std::to_string(rank), "");  // the store lives as long as rank 0
        for (int other = 0; other < size; ++other) group->key_values().get("done/" + std::to_string(other), 20s);
        if (rank == 0) std::this_thread::sleep_for(50ms);
      } catch (const std::exception& failure) {
        ADD_FAILURE() << "rank " << rank << ": " << failure.what();
      }
    });
  }
  for (auto& rank : ranks) rank.join();
}

#define NEEDS_GLOO() \
  if (!gloo_part().available) GTEST_SKIP() << "gloo is not in this build"

torch::Tensor input_of(int rank, std::int64_t values) {
  return torch::arange(1, values + 1, torch::kFloat32).mul(0.37 * (rank + 1)).sin().mul(std::pow(10.0, rank));
}

// gloo's sockets raise SIGPIPE when a rank is gone; that must not end the program that uses epipe.
TEST(Group, AProcessOutlivesAWriteToARankThatLeft) {
  NEEDS_GLOO();
  const auto before = std::signal(SIGPIPE, SIG_DFL);
  as_group(2, [](Group&) {});
  const auto ignored = std::signal(SIGPIPE, [](int) {});
  EXPECT_EQ(ignored, SIG_IGN);
  as_group(2, [](Group&) {});
  const auto own = std::signal(SIGPIPE, before);
  EXPECT_NE(own, SIG_IGN) << "a handler of one's own stays";
  EXPECT_NE(own, SIG_DFL);
}

TEST(Group, SumsInTheOrderOfTheRanks) {
  NEEDS_GLOO();
  for (const int size : {1, 2, 4}) {
    as_group(size, [size](Group& group) {
      for (const std::int64_t values : {0, 1, 2, 3, 5, 1000}) {
        torch::Tensor expected = input_of(0, values);
        for (int rank = 1; rank < size; ++rank) expected += input_of(rank, values);
        torch::Tensor x = input_of(group.rank(), values);
        group.all_reduce_sum(x);
        EXPECT_TRUE(torch::equal(x, expected)) << size << " ranks, " << values << " values";
      }
    });
  }
}

TEST(Group, ABucketHasTheSameSumAsItsParts) {
  NEEDS_GLOO();
  as_group(3, [](Group& group) {
    auto whole = torch::arange(0, 100, torch::kFloat64).mul(0.1 * (group.rank() + 1)).sin();
    auto head = whole.slice(0, 0, 37).clone();
    auto tail = whole.slice(0, 37, 100).clone();
    group.all_reduce_sum(whole);
    group.all_reduce_sum(head);
    group.all_reduce_sum(tail);
    EXPECT_TRUE(torch::equal(whole, torch::cat({head, tail})));
  });
}

TEST(Group, ConnectsEveryPairOfRanks) {
  NEEDS_GLOO();
  as_group(4, [](Group& group) {
    std::map<int, std::unique_ptr<Link>> links;
    for (int peer = 0; peer < 4; ++peer) {
      if (peer != group.rank()) links[peer] = group.link(peer, 7);
    }
    for (const auto& [peer, link] : links) link->send(Bytes(static_cast<std::size_t>(10 * group.rank() + peer)));
    for (const auto& [peer, link] : links) EXPECT_EQ(link->recv(20s).size(), 10U * peer + group.rank());
  });
}

TEST(Group, SubgroupsSumAmongThemselves) {
  NEEDS_GLOO();
  as_group(4, [](Group& group) {
    const std::vector<int> mine = group.rank() % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{3, 1};
    const auto sub = group.subgroup(mine, group.rank() % 2 == 0 ? "even" : "odd");
    EXPECT_EQ(sub->size(), 2);
    EXPECT_EQ(mine[sub->rank()], group.rank());
    auto x = torch::full({5}, group.rank(), torch::kFloat32);
    sub->all_reduce_sum(x);
    EXPECT_TRUE(torch::equal(x, torch::full({5}, group.rank() % 2 == 0 ? 2 : 4, torch::kFloat32)));
    const auto link = sub->link(1 - sub->rank(), 0);
    link->send(Bytes(static_cast<std::size_t>(group.rank())));
    EXPECT_EQ(link->recv(20s).size(), static_cast<std::size_t>(mine[1 - sub->rank()]));
  });
}

// The reader has what it waited for and goes, while the sender still waits for gloo to say so.
TEST(Group, AMessageThatArrivedIsSentHoweverSoonThePeerCloses) {
  NEEDS_GLOO();
  as_group(2, [](Group& group) {
    for (std::uint32_t channel = 0; channel < 1500; ++channel) {
      const auto link = group.link(1 - group.rank(), channel);
      const std::size_t bytes = channel % 2 == 0 ? 1 : 100'000;
      if (group.rank() == 0) {
        EXPECT_NO_THROW(link->send(Bytes(bytes))) << channel;
      } else {
        EXPECT_EQ(link->recv(20s).size(), bytes);
      }
    }
  });
}

TEST(Group, ASubgroupCallsItsRanksByTheirNumbersInTheRun) {
  NEEDS_GLOO();
  as_group(4, [](Group& group) {
    const std::vector<int> mine = group.rank() % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3};
    auto sub = group.subgroup(mine, group.rank() % 2 == 0 ? "even" : "odd");
    if (group.rank() < 2) return;  // leaves the subgroup
    auto x = torch::ones({5});
    try {
      sub->all_reduce_sum(x);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const ConnectionLost& lost) {
      EXPECT_NE(std::string(lost.what()).find("rank " + std::to_string(mine[0]) + " is gone"), std::string::npos) << lost.what();
    }
  });
}

TEST(Group, SharesSmallStrings) {
  NEEDS_GLOO();
  as_group(3, [](Group& group) {
    if (group.rank() == 2) {
      std::this_thread::sleep_for(100ms);
      group.key_values().put("from 2", std::string("a\0b", 3));
    }
    EXPECT_EQ(group.key_values().get("from 2", 20s), std::string("a\0b", 3));
    EXPECT_THROW(group.key_values().get("from nobody", 20ms), TimedOut);
  });
}

TEST(Group, NamesTheRanksThatDidNotCome) {
  NEEDS_GLOO();
  auto config = config_of(0, 4, free_port());
  config.timeout = 500ms;
  std::thread second([config]() mutable {
    config.rank = 2;
    EXPECT_THROW(make_group(config), std::runtime_error);
  });
  try {
    make_group(config);
    ADD_FAILURE() << "made a group of 4 with 2";
  } catch (const std::runtime_error& failure) {
    EXPECT_NE(std::string(failure.what()).find("missing: 1, 3"), std::string::npos) << failure.what();
  }
  second.join();
}

TEST(Group, SaysWhereRankZeroIsMissing) {
  NEEDS_GLOO();
  auto config = config_of(1, 2, free_port());
  config.timeout = 500ms;
  const Stopwatch watch;
  try {
    make_group(config);
    ADD_FAILURE() << "made a group without rank 0";
  } catch (const std::runtime_error& failure) {
    EXPECT_NE(std::string(failure.what()).find("rank 0"), std::string::npos) << failure.what();
  }
  EXPECT_LT(watch.seconds(), 10.0);
}

TEST(Group, RefusesWrongConfigurations) {
  NEEDS_GLOO();
  EXPECT_THROW(make_group(config_of(2, 2, 1000)), std::invalid_argument);
  EXPECT_THROW(make_group(config_of(0, 2, 0)), std::invalid_argument);
  auto other = config_of(0, 1, 0);
  other.backend = "smoke";
  EXPECT_THROW(make_group(other), std::invalid_argument);
  const auto alone = make_group(config_of(0, 1, 0));
  EXPECT_THROW(alone->link(0, 0), std::invalid_argument);
  EXPECT_THROW(alone->subgroup({1}, "x"), std::invalid_argument);
}

TEST(Group, AChannelIsUsedOnce) {
  NEEDS_GLOO();
  as_group(2, [](Group& group) {
    { const auto link = group.link(1 - group.rank(), 5); }
    EXPECT_THROW(group.link(1 - group.rank(), 5), std::invalid_argument);
  });
}

TEST(Group, RefusesALengthAboveTheLimit) {
  NEEDS_GLOO();
  testing::GlooFabric fabric(100'000);
  auto [a, b] = fabric.connect();
  EXPECT_THROW(a->send(Bytes(100'001)), std::runtime_error);
  a->send(Bytes(100'000));
  EXPECT_EQ(b->recv(20s).size(), 100'000U);
}

TEST(Group, WaitsFarLongerThanItsTimeout) {
  NEEDS_GLOO();
  const int port = free_port();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([rank, port] {
      auto config = config_of(rank, 2, port);
      config.timeout = 1s;
      const auto group = make_group(config);
      const auto link = group->link(1 - rank, 0);
      if (rank == 0) std::this_thread::sleep_for(2500ms);
      link->send(Bytes(3));
      EXPECT_EQ(link->recv(kNoTimeout).size(), 3U);
    });
  }
  for (auto& rank : ranks) rank.join();
}

TEST(Liveness, NoticesARankThatStopsGivingSigns) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Liveness first(store, 0, 2);
  auto second = std::make_unique<Liveness>(store, 1, 2);
  std::this_thread::sleep_for(1s);
  EXPECT_EQ(first.lost(1), "");
  EXPECT_EQ(second->lost(0), "");
  second.reset();
  const Stopwatch watch;
  while (first.lost(1).empty() && watch.seconds() < 20) std::this_thread::sleep_for(10ms);
  EXPECT_NE(first.lost(1).find("rank 1 is gone"), std::string::npos);
}

TEST(Backends, ThatAreNotInTheBuildSayHowToGetThem) {
  auto config = config_of(0, 1, 0);
  config.backend = "nccl";
  try {
    make_group(config);
  } catch (const std::runtime_error& missing) {
    EXPECT_NE(std::string(missing.what()).find("nccl"), std::string::npos) << missing.what();
  }
}

// What the process of rank 1 does in the tests below.
int be_peer(const std::string& work, int port) {
  const auto group = make_group(config_of(1, 2, port));
  const auto link = group->link(0, 0);
  if (work == "sleep") std::this_thread::sleep_for(1h);
  if (work == "send") {
    while (true) link->send(Bytes(1'000'000));
  }
  if (work == "recv") {
    while (true) link->recv(kNoTimeout);
  }
  if (work == "measure") serve_measurement(*link, 20s);
  return 0;
}

struct Other {
  explicit Other(const std::string& work)
      : port(free_port()),
        process({{"EPIPE_TEST_PEER", work}, {"EPIPE_TEST_PORT", std::to_string(port)}}),
        group(make_group(config_of(0, 2, port))),
        link(group->link(1, 0)) {}
  int port;
  Child process;
  std::unique_ptr<Group> group;
  std::unique_ptr<Link> link;
};

// Kills the other rank while `use` waits for it; that must end with ConnectionLost, which names the rank, soon.
void expect_lost(Other& other, const std::function<void()>& use) {
  Stopwatch since_kill;
  std::thread killer([&] {
    std::this_thread::sleep_for(200ms);
    since_kill = Stopwatch();
    other.process.signal(SIGKILL);
  });
  try {
    use();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ConnectionLost& lost) {
    EXPECT_NE(std::string(lost.what()).find("rank 1"), std::string::npos) << lost.what();
  }
  killer.join();
  EXPECT_LT(since_kill.seconds(), 5.0);
}

TEST(KilledRank, IsNoticedByAReader) {
  NEEDS_GLOO();
  Other other("sleep");
  expect_lost(other, [&] { other.link->recv(kNoTimeout); });
  EXPECT_THROW(other.link->send(Bytes(10)), ConnectionLost);
  EXPECT_THROW(other.group->link(1, 1)->recv(20s), ConnectionLost);
}

TEST(KilledRank, IsNoticedByASender) {
  NEEDS_GLOO();
  for (const char* const work : {"sleep", "recv", "send"}) {
    Other other(work);
    expect_lost(other, [&] {
      while (true) other.link->send(Bytes(1'000'000));
    });
  }
}

TEST(KilledRank, IsNoticedInTheMiddleOfMessages) {
  NEEDS_GLOO();
  Other other("send");
  expect_lost(other, [&] {
    while (true) other.link->recv(kNoTimeout);
  });
}

TEST(KilledRank, EndsAnAllReduce) {
  NEEDS_GLOO();
  Other other("sleep");
  auto x = torch::ones({1000});
  expect_lost(other, [&] { other.group->all_reduce_sum(x); });
}

TEST(StoppedRank, DoesNotStopACloseHere) {
  NEEDS_GLOO();
  Other other("recv");
  other.process.signal(SIGSTOP);
  std::thread sender([&] { EXPECT_THROW(while (true) other.link->send(Bytes(1'000'000)), Closed); });
  std::this_thread::sleep_for(300ms);
  const Stopwatch watch;
  other.link->close();
  sender.join();
  other.link.reset();
  other.group.reset();
  EXPECT_LT(watch.seconds(), 5.0);
}

// EPIPE_MEASURE=1 prints the speed between two processes.
TEST(TwoProcesses, MeasureTheirLink) {
  NEEDS_GLOO();
  Other other("measure");
  const bool print = std::getenv("EPIPE_MEASURE") != nullptr;
  const std::vector<std::size_t> sizes = print
                                             ? std::vector<std::size_t>{1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20}
                                             : std::vector<std::size_t>{1000, 100'000};
  for (const auto& speed : measure_link(*other.link, sizes, print ? 0.3 : 0.01, 20s)) {
    EXPECT_GT(speed.send_MBps, 0);
    if (print) {
      std::printf("gloo, 2 processes %9zu bytes %9.1f us round trip %8.1f MB/s out %8.1f MB/s in\n", speed.bytes,
                  1e6 * speed.round_trip_seconds, speed.send_MBps, speed.recv_MBps);
    }
  }
  other.link->close();
  EXPECT_EQ(other.process.wait(), 0);
}

}  // namespace
}  // namespace epipe::transport

int main(int argc, char** argv) {
  const char* const work = std::getenv("EPIPE_TEST_PEER");
  if (work != nullptr) return epipe::transport::be_peer(work, std::atoi(std::getenv("EPIPE_TEST_PORT")));
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
