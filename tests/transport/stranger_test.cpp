// A listener and somebody who speaks another language, another version, or too much.
#include "support/stranger.h"

#include <random>

#include "epipe/transport/grpc/metadata.h"
#include "support/greeter.h"
#include "support/raw_socket.h"

namespace epipe::transport {
namespace {

using namespace std::chrono_literals;
using testing::greeted;
using testing::Greeter;
using testing::plain_dial;
using testing::plain_listen;
using testing::Stranger;
using testing::tls_dial;
using testing::tls_listen;

TEST(Listener, SurvivesGarbageOnItsPort) {
  std::mt19937 random(7);
  for (const auto& config : {plain_listen(), tls_listen()}) {
    const Greeter greeter(config);
    for (int round = 0; round < 20; ++round) {
      const testing::RawSocket socket(greeter.port());
      std::string garbage(1 + random() % 5000, '\0');
      for (auto& c : garbage) c = static_cast<char>(random());
      if (round % 3 == 0) garbage = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
      if (round % 3 == 1) garbage = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + garbage;
      socket.write(garbage);
      EXPECT_TRUE(round % 2 == 1 || socket.ends()) << round;
    }
    EXPECT_EQ(greeted(config.insecure ? plain_dial() : tls_dial(), greeter.address()), "");
  }
}

std::string header(std::uint64_t length) { return {reinterpret_cast<const char*>(&length), sizeof(length)}; }

TEST(Listener, RefusesOtherVersionsAndMethods) {
  const Greeter greeter(plain_listen());
  for (const auto& [method, metadata, expected] :
       std::vector<std::tuple<std::string, std::map<std::string, std::string>, ::grpc::StatusCode>>{
           {"/epipe.Link/Open", {{"epipe-version", "1"}}, ::grpc::StatusCode::FAILED_PRECONDITION},
           {"/epipe.Link/Open", {}, ::grpc::StatusCode::FAILED_PRECONDITION},
           {"/epipe.Link/Close", {{"epipe-version", kVersion}}, ::grpc::StatusCode::UNIMPLEMENTED}}) {
    Stranger stranger(greeter.port(), method, metadata);
    EXPECT_EQ(stranger.end().error_code(), expected) << method;
  }
}

// What recv() says about pieces that no connector sends.
std::string complaint_about(const std::vector<std::string>& pieces) {
  auto listen = plain_listen();
  listen.max_message_bytes = 1000;
  testing::Accepted accepted;
  const Listener listener(listen, accepted.handler());
  Stranger stranger(listener.port(), "/epipe.Link/Open", {{"epipe-version", kVersion}});
  const auto link = accepted.next();
  for (const auto& piece : pieces) stranger.send(piece);
  std::string text = "nothing was thrown";
  try {
    while (true) link->recv(5s);
  } catch (const ConnectionLost& lost) {
    text = lost.what();
  } catch (const TimedOut&) {
    text = "still waiting";
  }
  stranger.end();
  return text;
}

TEST(Listener, ChecksLengthsBeforeItBelievesThem) {
  EXPECT_NE(complaint_about({header(1001)}).find("1001 bytes is above the limit of 1000"), std::string::npos);
  EXPECT_NE(complaint_about({header(~0ULL)}).find("above the limit"), std::string::npos);
  EXPECT_NE(complaint_about({"short"}).find("expected a length of 8 bytes, got 5"), std::string::npos);
  EXPECT_NE(complaint_about({""}).find("expected a length of 8 bytes, got 0"), std::string::npos);
  EXPECT_NE(complaint_about({header(3) + "four"}).find("expected a piece of 11 bytes, got 12"), std::string::npos);
  EXPECT_NE(complaint_about({header(5) + "four"}).find("expected a piece of 13 bytes, got 12"), std::string::npos);
  EXPECT_NE(complaint_about({header(4) + "four", header(2000)}).find("above the limit"), std::string::npos);
}

TEST(Link, RefusesToSendMoreThanTheLimit) {
  auto dial = plain_dial();
  dial.max_message_bytes = 10;
  testing::GrpcFabric fabric(plain_listen(), dial);
  auto [a, b] = fabric.connect();
  EXPECT_THROW(a->send(Bytes(11)), std::runtime_error);
  a->send(Bytes(10));
  EXPECT_EQ(b->recv(20s).size(), 10U);
  b->send(Bytes(11));
  EXPECT_THROW(a->recv(20s), ConnectionLost);
}

}  // namespace
}  // namespace epipe::transport
