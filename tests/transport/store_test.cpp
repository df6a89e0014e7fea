// The store through which the ranks of a run meet.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "epipe/base/clock.h"
#include "epipe/transport/c10d/support.h"
#include "epipe/transport/c10d/tcp_store.h"
#include "epipe/transport/group.h"
#include "support/listeners.h"
#include "support/raw_socket.h"

namespace epipe::transport {
namespace {

using namespace std::chrono_literals;

using Value = std::vector<std::uint8_t>;

class Store_ : public ::testing::Test {
 protected:
  c10::intrusive_ptr<TcpStore> connect(Timeout timeout = 20s) const { return c10::make_intrusive<TcpStore>("127.0.0.1", port_, timeout); }

  int port_ = free_port();
  std::shared_ptr<StoreServer> server_ = std::make_shared<StoreServer>("127.0.0.1", port_);
};

TEST_F(Store_, KeepsWhatOneRankSetsForTheOthers) {
  const auto one = connect();
  const auto other = connect();
  EXPECT_FALSE(other->check({"a"}));
  one->set("a", {1, 0, 255});
  one->set("empty", {});
  EXPECT_TRUE(other->check({"a", "empty"}));
  EXPECT_FALSE(other->check({"a", "b"}));
  EXPECT_EQ(other->get("a"), (Value{1, 0, 255}));
  EXPECT_EQ(other->get("empty"), Value{});
  EXPECT_EQ(other->getNumKeys(), 2);
  EXPECT_TRUE(other->deleteKey("a"));
  EXPECT_FALSE(other->deleteKey("a"));
  EXPECT_EQ(one->getNumKeys(), 1);
}

TEST_F(Store_, AddsForAllRanksTogether) {
  std::vector<std::thread> ranks;
  for (int r = 0; r < 4; ++r) {
    ranks.emplace_back([&] {
      const auto store = connect();
      for (int i = 0; i < 100; ++i) store->add("sum", 3);
    });
  }
  for (auto& rank : ranks) rank.join();
  EXPECT_EQ(connect()->add("sum", -200), 1000);
  EXPECT_EQ(connect()->get("sum"), (Value{'1', '0', '0', '0'})) << "a number is text, as in c10d's stores";
}

TEST_F(Store_, ComparesBeforeItSets) {
  const auto store = connect();
  EXPECT_EQ(store->compareSet("a", {9}, {1}), (Value{9})) << "it is not there";
  EXPECT_FALSE(store->check({"a"}));
  EXPECT_EQ(store->compareSet("a", {}, {1}), (Value{1}));
  EXPECT_EQ(store->compareSet("a", {2}, {3}), (Value{1}));
  EXPECT_EQ(store->compareSet("a", {1}, {3}), (Value{3}));
  EXPECT_EQ(store->get("a"), (Value{3}));
}

TEST_F(Store_, AWaitEndsWhenTheKeyComesAndKeepsNobodyFromAsking) {
  const auto store = connect();
  std::thread waiting([&] { EXPECT_EQ(store->get("late"), (Value{7})); });
  std::this_thread::sleep_for(100ms);
  store->set("late", {7});  // over the connection of the one that waits
  waiting.join();
  EXPECT_THROW(store->wait({"never"}, 50ms), std::runtime_error);
  EXPECT_EQ(store->clone()->get("late"), (Value{7}));
}

TEST_F(Store_, ARankThatComesFirstWaitsForRankZero) {
  const int port = free_port();
  std::thread early([port] { EXPECT_NO_THROW(TcpStore("127.0.0.1", port, 20s).set("a", {1})); });
  std::this_thread::sleep_for(200ms);
  const StoreServer late("127.0.0.1", port);
  early.join();
}

TEST_F(Store_, SaysWhenRankZeroIsGone) {
  const auto store = connect();
  store->set("a", {1});
  server_ = nullptr;
  EXPECT_THROW(store->get("a"), std::runtime_error);
  EXPECT_THROW(store->set("a", {1}), std::runtime_error) << "and stays so";
  const Stopwatch watch;
  EXPECT_THROW(connect(300ms), std::runtime_error);
  EXPECT_LT(watch.seconds(), 5.0);
}

TEST_F(Store_, HangsUpOnStrangersAndLivesOn) {
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, '\xff'), std::string("\0\0\0\0", 4), std::string("\1\0\0\0\0", 5),
        std::string("\5\0\0\0\0\xff\xff\xff\xff", 9), std::string("\5\0\0\0\x63\0\0\0\0", 9), std::string("\5\0\0\0\3\0\0\0\0", 9)}) {
    const testing::RawSocket stranger(port_);
    stranger.write(garbage);
    EXPECT_TRUE(stranger.ends()) << garbage.substr(0, 20);
  }
  const testing::RawSocket silent(port_);
  EXPECT_THROW(connect()->set("long", Value(2'000'000)), std::runtime_error);
  connect()->set("a", Value(1'000'000));
  EXPECT_EQ(connect()->get("a").size(), 1'000'000U);
}

// Without a limit a stranger fills the memory of rank 0, key by key.
TEST_F(Store_, KeepsNoMoreThanItsMemory) {
  const auto rank = connect();
  rank->set("a", {1});
  const auto stranger = connect();
  std::size_t taken = 0;
  EXPECT_THROW(
      while (taken < 2 * kMaxStoreMemory) {
        stranger->set(std::to_string(taken), Value(1'000'000));
        taken += 1'000'000;
      },
      std::runtime_error);
  EXPECT_LT(taken, kMaxStoreMemory);
  EXPECT_GT(taken, kMaxStoreMemory - 3'000'000);
  EXPECT_EQ(rank->get("a"), (Value{1})) << "what was there stays";
  for (std::size_t key = 0; key < taken; key += 1'000'000) EXPECT_TRUE(connect()->deleteKey(std::to_string(key)));
  connect()->set("b", Value(1'000'000));
  EXPECT_EQ(connect()->get("b").size(), 1'000'000U) << "and room that was given back is room";
}

TEST_F(Store_, CountsRequestsThatNeverEnd) {
  std::vector<std::unique_ptr<testing::RawSocket>> strangers;
  const std::string begun = std::string("\0\0\x10\0", 4) + std::string(900'000, 'x');  // 900,000 of 1 MiB
  for (int i = 0; i < 310; ++i) {
    strangers.push_back(std::make_unique<testing::RawSocket>(port_));
    strangers.back()->write(begun);
  }
  // Which of them is one too many depends on the order in which the store came to read them; mostly the last.
  const bool ended = std::any_of(strangers.rbegin(), strangers.rend(), [](const auto& stranger) { return stranger->ends(); });
  EXPECT_TRUE(ended) << "310 * 900,000 bytes are more than a store keeps";
  strangers.clear();
  connect()->set("b", Value(1'000'000));
}

TEST_F(Store_, ListensOnTheAddressItIsGivenAlone) {
  auto listeners = testing::listeners_of(::getpid());
  std::erase_if(listeners, [this](const auto& listener) { return listener.port != port_; });
  ASSERT_EQ(listeners.size(), 1U);
  EXPECT_EQ(listeners[0].address, "0100007F") << "127.0.0.1";
}

TEST(Store, RefusesAnAddressOfAnotherMachine) {
  try {
    const StoreServer server("192.0.2.1", free_port());  // for documentation, nobody's
    ADD_FAILURE() << "it listens";
  } catch (const std::runtime_error& refused) {
    EXPECT_NE(std::string(refused.what()).find("not an address of this machine, where rank 0 is"), std::string::npos) << refused.what();
  }
}

TEST(Group, ListensOnTheMastersInterfaceAlone) {
  if (!gloo_part().available) GTEST_SKIP() << "gloo is not in this build";
  GroupConfig config;
  config.size = 2;
  config.master_port = free_port();
  config.timeout = 20s;
  std::thread second([config]() mutable {
    config.rank = 1;
    const auto group = make_group(config);
    group->key_values().get("seen", 20s);
  });
  {
    const auto group = make_group(config);
    const auto listeners = testing::listeners_of(::getpid());
    EXPECT_GE(listeners.size(), 1U);
    for (const auto& listener : listeners) EXPECT_TRUE(listener.on_loopback()) << listener.address << ":" << listener.port;
    group->key_values().put("seen", "");
    second.join();
  }
}

// torchrun's agent keeps a store at MASTER_ADDR:MASTER_PORT; no rank may listen there.
TEST(Group, MeetsInTheStoreOfTorchrunsAgent) {
  if (!gloo_part().available) GTEST_SKIP() << "gloo is not in this build";
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const auto agent = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&agent, rank] {
      GroupConfig config;
      config.rank = rank;
      config.size = 2;
      config.master_port = agent->getPort();
      config.agent_prefix = "/worker/attempt_0";
      config.timeout = 20s;
      const auto group = make_group(config);
      auto x = torch::ones({3});
      group->all_reduce_sum(x);
      EXPECT_TRUE(torch::equal(x, torch::full({3}, 2.0F)));
    });
  }
  for (auto& rank : ranks) rank.join();
}

}  // namespace
}  // namespace epipe::transport
