#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "epipe/base/clock.h"
#include "epipe/transport/relay.h"
#include "support/child.h"
#include "support/fabrics.h"

// gRPC links whose other side dies, stalls, or shuts down; and links that go through a relay.
namespace epipe::transport {
namespace {

using namespace std::chrono_literals;
using testing::Child;
using testing::plain_dial;
using testing::plain_listen;

constexpr KeepAlive kQuick{300ms, 500ms};

Bytes message(std::size_t bytes, int seed) {
  Bytes out(bytes);
  for (std::size_t k = 0; k < bytes; ++k) out[k] = static_cast<std::byte>(k * 7 + k / 1000 + seed);
  return out;
}

// What the other process does: it connects, or it listens, and uses its end.
void use(Link& link, const std::string& work) {
  if (work == "send") {
    while (true) link.send(Bytes(1'000'000));
  }
  if (work == "recv") {
    while (true) link.recv(kNoTimeout);
  }
  std::this_thread::sleep_for(1h);
}

int be_client(const std::string& address, const std::string& work) {
  Connector connector(plain_dial(address));
  const auto link = connector.open({});
  use(*link, work);
  return 0;
}

int be_server(const std::string& address, const std::string& work) {
  const Listener listener(plain_listen(address), [&](Incoming incoming) { use(*incoming.accept(), work); });
  std::this_thread::sleep_for(1h);
  return 0;
}

std::map<std::string, std::string> role(const std::string& name, const std::string& address, const std::string& work) {
  return {{"EPIPE_TEST_ROLE", name}, {"EPIPE_TEST_ADDRESS", address}, {"EPIPE_TEST_WORK", work}};
}

// A link to another process, from either side.
struct Other {
  Other(bool listens, const std::string& work) {
    const std::string address = "127.0.0.1:" + std::to_string(free_port());
    if (!listens) {
      auto listen = plain_listen(address);
      listen.keep_alive = kQuick;
      listener = std::make_unique<Listener>(listen, accepted.handler());
      process = std::make_unique<Child>(role("client", address, work));
      link = accepted.next();
      return;
    }
    process = std::make_unique<Child>(role("server", address, work));
    link = dial_until_there(address);
  }
  static std::unique_ptr<Link> dial_until_there(const std::string& address) {
    auto dial = plain_dial(address);
    dial.keep_alive = kQuick;
    Connector connector(dial);
    for (const Stopwatch watch; watch.seconds() < 20; std::this_thread::sleep_for(50ms)) {
      try {
        return connector.open({});
      } catch (const ConnectionLost&) {
        // not yet
      }
    }
    throw std::runtime_error("the other process does not listen");
  }

  testing::Accepted accepted;
  std::unique_ptr<Listener> listener;
  std::unique_ptr<Child> process;
  std::unique_ptr<Link> link;
};

// The signal comes while `wait` waits; ConnectionLost must follow within `seconds`.
void expect_lost(Other& other, int signal, double seconds, const std::function<void()>& wait) {
  Stopwatch since;
  std::thread sender([&] {
    std::this_thread::sleep_for(200ms);
    since = Stopwatch();
    other.process->signal(signal);
  });
  EXPECT_THROW(wait(), ConnectionLost);
  sender.join();
  EXPECT_LT(since.seconds(), seconds);
}

class OtherProcess : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!grpc_part().available) GTEST_SKIP() << "gRPC is not in this build";
  }
};

TEST_P(OtherProcess, KilledIsNoticedByAReader) {
  Other other(GetParam(), "sleep");
  expect_lost(other, SIGKILL, 3, [&] { other.link->recv(kNoTimeout); });
  EXPECT_THROW(other.link->send(Bytes(1)), ConnectionLost);
}

TEST_P(OtherProcess, KilledIsNoticedByASender) {
  for (const char* const work : {"sleep", "recv"}) {
    Other other(GetParam(), work);
    expect_lost(other, SIGKILL, 3, [&] {
      while (true) other.link->send(Bytes(1'000'000));
    });
  }
}

TEST_P(OtherProcess, KilledIsNoticedInTheMiddleOfMessages) {
  Other other(GetParam(), "send");
  expect_lost(other, SIGKILL, 3, [&] {
    while (true) other.link->recv(kNoTimeout);
  });
}

// A stopped process keeps its connections open and answers nothing, as a machine behind a cut cable does.
TEST_P(OtherProcess, StalledIsNoticedOnAnIdleLink) {
  Other other(GetParam(), "sleep");
  std::this_thread::sleep_for(2s);
  expect_lost(other, SIGSTOP, 5, [&] { other.link->recv(kNoTimeout); });
}

TEST_P(OtherProcess, AliveIsNotLostHoweverLongNothingHappens) {
  Other other(GetParam(), "sleep");
  EXPECT_THROW(other.link->recv(3s), TimedOut);
}

TEST_P(OtherProcess, StalledDoesNotStopACloseHere) {
  Other other(GetParam(), "recv");
  other.process->signal(SIGSTOP);
  std::thread sender([&] { EXPECT_ANY_THROW(while (true) other.link->send(Bytes(1'000'000))); });
  std::this_thread::sleep_for(100ms);
  const Stopwatch watch;
  other.link->close();
  sender.join();
  other.link.reset();
  EXPECT_LT(watch.seconds(), 15.0);  // two times 2 s of lingering, where the kernel still took something in the first
}

INSTANTIATE_TEST_SUITE_P(Grpc, OtherProcess, ::testing::Bool(), [](const auto& its) { return its.param ? "Listening" : "Dialing"; });

class Grpc : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!grpc_part().available) GTEST_SKIP() << "gRPC is not in this build";
  }
};

TEST_F(Grpc, AListenerThatShutsDownEndsItsLinksAndSaysSo) {
  testing::GrpcFabric fabric(plain_listen(), plain_dial());
  auto [a, b] = fabric.connect();
  std::thread reader([&a = a] {
    try {
      a->recv(kNoTimeout);
      ADD_FAILURE() << "a message came";
    } catch (const ConnectionLost& lost) {
      EXPECT_NE(std::string(lost.what()).find("shutting down"), std::string::npos) << lost.what();
    }
  });
  std::this_thread::sleep_for(50ms);
  const Stopwatch watch;
  fabric.listener().shutdown();
  reader.join();
  EXPECT_THROW(b->recv(20s), Closed);
  EXPECT_LT(watch.seconds(), 5.0);
  EXPECT_THROW(fabric.connect(), ConnectionLost);
}

TEST_F(Grpc, AListenerShutsDownWithLinksThatNobodyAnswered) {
  auto listener = std::make_unique<Listener>(plain_listen(), [](Incoming) { std::this_thread::sleep_for(500ms); });
  auto dial = plain_dial("127.0.0.1:" + std::to_string(listener->port()));
  std::vector<std::thread> clients;
  for (int k = 0; k < 4; ++k) clients.emplace_back([dial] { EXPECT_THROW(Connector(dial).open({}), ConnectionLost); });
  std::this_thread::sleep_for(100ms);
  const Stopwatch watch;
  listener.reset();
  EXPECT_LT(watch.seconds(), 5.0);
  for (auto& client : clients) client.join();
}

TEST_F(Grpc, CloseBecauseTellsTheDialerWhy) {
  testing::GrpcFabric fabric(plain_listen(), plain_dial());
  auto [a, b] = fabric.connect();
  b->send(message(10, 1));
  close_because(*b, "the session ran out of memory");
  EXPECT_EQ(a->recv(20s), message(10, 1));
  try {
    a->recv(20s);
    ADD_FAILURE() << "a message came";
  } catch (const ConnectionLost& lost) {
    EXPECT_NE(std::string(lost.what()).find("the session ran out of memory"), std::string::npos) << lost.what();
  }
}

TEST_F(Grpc, LinksOutliveTheirDialer) {
  testing::Accepted accepted;
  const Listener listener(plain_listen(), accepted.handler());
  auto connector = std::make_unique<Connector>(plain_dial("127.0.0.1:" + std::to_string(listener.port())));
  const auto a = connector->open({});
  const auto b = accepted.next();
  connector.reset();
  a->send(message(100, 1));
  EXPECT_EQ(b->recv(20s), message(100, 1));
}

// gRPC stops its threads when nobody uses it any more, and starts them again.
TEST_F(Grpc, AllOfItComesAndGoes) {
  for (int k = 0; k < 200; ++k) {
    testing::GrpcFabric fabric(plain_listen(), plain_dial());
    auto [a, b] = fabric.connect();
    a->send(message(10, k));
    EXPECT_EQ(b->recv(20s), message(10, k));
  }
}

// A client over TLS, a front that accepts, and a session behind a Unix socket.
struct Relayed {
  Relayed() : front(testing::tls_listen(), testing::tls_dial()), inner(plain_listen("unix:" + folder.file("socket")), plain_dial()) {
    auto outside = front.connect();
    auto inside = inner.connect();
    client = std::move(outside.first);
    session = std::move(inside.second);
    relay = std::make_unique<Relay>(std::move(outside.second), std::move(inside.first),
                                    Relay::Observer{.on_end = [this](const std::string& why) { reasons.push(why); }});
  }
  const testing::TempFolder folder;
  testing::GrpcFabric front;
  testing::GrpcFabric inner;
  std::unique_ptr<Link> client;
  std::unique_ptr<Link> session;
  Queue<std::string> reasons{4};
  std::unique_ptr<Relay> relay;
};

TEST_F(Grpc, APeerThatTakesNothingIsLostHoweverAliveItIs) {
  for (const bool dialer_sends : {true, false}) {
    auto listen = plain_listen();
    auto dial = plain_dial();
    listen.send_timeout = 500ms;
    dial.send_timeout = 500ms;
    testing::GrpcFabric fabric(listen, dial);
    const auto ends = fabric.connect();
    auto& sender = dialer_sends ? *ends.first : *ends.second;
    const Stopwatch watch;
    EXPECT_THROW(while (watch.seconds() < 30) sender.send(Bytes(1'000'000)), ConnectionLost);
    EXPECT_LT(watch.seconds(), 30.0);
  }
}

TEST_F(Grpc, ARelayForwardsBothWays) {
  Relayed relayed;
  const auto send_all = [](Link& link, int seed) {
    for (int k = 0; k < 20; ++k) link.send(message(k * 300'000, seed + k));
  };
  const auto recv_all = [](Link& link, int seed) {
    for (int k = 0; k < 20; ++k) EXPECT_TRUE(link.recv(20s) == message(k * 300'000, seed + k)) << k;
  };
  std::thread up([&] { send_all(*relayed.client, 0); });
  std::thread down([&] { send_all(*relayed.session, 50); });
  std::thread there([&] { recv_all(*relayed.session, 0); });
  recv_all(*relayed.client, 50);
  up.join();
  down.join();
  there.join();
  EXPECT_FALSE(relayed.relay->ended());
}

TEST_F(Grpc, ARelayHoldsOnlyAFewPieces) {
  Relayed relayed;
  std::atomic<int> sent = 0;
  std::thread sender([&] {
    EXPECT_ANY_THROW(while (true) {
      relayed.client->send(Bytes(1'000'000));
      ++sent;
    });
  });
  for (int before = -1; before != sent; std::this_thread::sleep_for(300ms)) before = sent;
  EXPECT_LT(sent, 100);
  relayed.client->close();
  sender.join();
}

TEST_F(Grpc, ARelayPassesTheEndOnWithWhatWasSentBefore) {
  Relayed relayed;
  relayed.session->send(message(2'000'000, 1));
  relayed.session->close();
  EXPECT_TRUE(relayed.client->recv(20s) == message(2'000'000, 1));
  try {
    relayed.client->recv(20s);
    ADD_FAILURE() << "a message came";
  } catch (const ConnectionLost& lost) {
    EXPECT_NE(std::string(lost.what()).find("closed the link"), std::string::npos) << lost.what();
  }
  EXPECT_NE(relayed.reasons.pop().find("closed the link"), std::string::npos);
  EXPECT_TRUE(relayed.relay->ended());

  Relayed other;
  other.client->send(message(2'000'000, 2));
  other.client.reset();
  EXPECT_TRUE(other.session->recv(20s) == message(2'000'000, 2));
  EXPECT_THROW(other.session->recv(20s), ConnectionLost);
}

TEST_F(Grpc, ARelayDeliversLastWordsToAClientThatIsSending) {
  for (int k = 0; k < 20; ++k) {
    Relayed relayed;
    std::thread sender([&] { EXPECT_THROW(while (true) relayed.client->send(Bytes(100'000)), ConnectionLost); });
    relayed.session->recv(20s);
    relayed.session->send(message(1000, k));
    relayed.session.reset();
    EXPECT_EQ(relayed.client->recv(20s), message(1000, k));
    sender.join();
  }
}

TEST_F(Grpc, ARelayForwardsWholeMessagesBetweenOtherLinks) {
  testing::GrpcFabric fabric(plain_listen(), plain_dial());
  auto outside = fabric.connect();
  auto inside = make_inproc_link(1);
  const Relay relay(std::move(outside.second), std::move(inside.first), {});
  outside.first->send(message(3'000'000, 1));
  EXPECT_TRUE(inside.second->recv(20s) == message(3'000'000, 1));
  inside.second->send(message(5, 2));
  EXPECT_EQ(outside.first->recv(20s), message(5, 2));
}

TEST_F(Grpc, ARelayThatIsDestroyedEndsBothLinks) {
  Relayed relayed;
  const Stopwatch watch;
  relayed.relay.reset();
  EXPECT_THROW(relayed.client->recv(20s), ConnectionLost);
  EXPECT_THROW(relayed.session->recv(20s), ConnectionLost);
  EXPECT_LT(watch.seconds(), 5.0);
}

}  // namespace
}  // namespace epipe::transport

int main(int argc, char** argv) {
  using namespace epipe::transport;
  const char* const role = std::getenv("EPIPE_TEST_ROLE");
  const char* const address = std::getenv("EPIPE_TEST_ADDRESS");
  const char* const work = std::getenv("EPIPE_TEST_WORK");
  if (role != nullptr) return std::string(role) == "client" ? be_client(address, work) : be_server(address, work);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
