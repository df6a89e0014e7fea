// What a connector refuses to do, and what it hears when a listener does.
#include <thread>

#include "support/greeter.h"

namespace epipe::transport {
namespace {

using namespace std::chrono_literals;
using testing::here;
using testing::plain_dial;
using testing::plain_listen;
using testing::refusal;
using testing::tls_dial;
using testing::tls_files;
using testing::tls_listen;

TEST(Plaintext, StaysOnThisMachine) {
  for (const char* const address : {"0.0.0.0:0", "192.168.1.1:80", "[::]:0", "example.com:443", "10.0.0.1:1", "127.0.0.1.example.com:1"}) {
    EXPECT_THROW(Connector{plain_dial(address)}, std::invalid_argument) << address;
    EXPECT_THROW(Listener(plain_listen(address), [](Incoming) {}), std::invalid_argument) << address;
  }
  for (const char* const address : {"127.0.0.1:1", "127.1.2.3:1", "[::1]:1", "localhost:1", "unix:/tmp/x"}) {
    EXPECT_NO_THROW(Connector{plain_dial(address)}) << address;
  }
}

TEST(Addresses, ThatMakeNoSenseAreRefused) {
  for (const char* const address :
       {"", "host", ":1", "host:", "host:x", "host:70000", "host:-1", "dns:///host:1", "a/b:1", "::1:80", "unix:"}) {
    EXPECT_THROW(Connector{plain_dial(address)}, std::invalid_argument) << address;
  }
}

TEST(Configurations, ThatProtectNothingAreRefused) {
  auto listen = tls_listen();
  listen.tokens.clear();
  EXPECT_THROW(Listener(listen, [](Incoming) {}), std::invalid_argument) << "nobody could show who they are";
  listen = tls_listen();
  listen.identity.reset();
  EXPECT_THROW(Listener(listen, [](Incoming) {}), std::invalid_argument) << "no certificate";
  listen = tls_listen();
  listen.identity->key_pem = tls_files().client.key_pem;
  EXPECT_THROW(Listener(listen, [](Incoming) {}), std::invalid_argument) << "a key of another certificate";
  auto dial = tls_dial();
  dial.address = "localhost:1";
  dial.ca_pem = "nonsense";
  EXPECT_THROW(Connector{dial}, std::invalid_argument);
  dial.ca_pem = "";
  EXPECT_THROW(Connector{dial}, std::invalid_argument);
  dial = tls_dial();
  dial.address = "localhost:1";
  dial.token = "two\nlines";
  EXPECT_THROW(Connector{dial}, std::invalid_argument);
}

TEST(Connector, SaysWhenNobodyListens) {
  const auto text = refusal(plain_dial(), "127.0.0.1:" + std::to_string(free_port()), std::nullopt);
  EXPECT_NE(text.find("127.0.0.1"), std::string::npos);
}

TEST(Connector, GivesUpOnAListenerThatDoesNotAnswer) {
  const Listener listener(plain_listen(), [](Incoming) { std::this_thread::sleep_for(2s); });
  auto dial = plain_dial();
  dial.connect_timeout = 200ms;
  const Stopwatch watch;
  const auto text = refusal(dial, here(listener), std::nullopt);
  EXPECT_NE(text.find("200 ms"), std::string::npos) << text;
  EXPECT_LT(watch.seconds(), 2.0);
}

TEST(Connector, HearsWhyItWasRefused) {
  for (const auto why : {Refusal::kFull, Refusal::kNotFound, Refusal::kOther, Refusal::kVersion}) {
    const Listener listener(plain_listen(), [why](Incoming incoming) { incoming.refuse(why, "session 7 says no"); });
    EXPECT_NE(refusal(plain_dial(), here(listener), why).find("session 7 says no"), std::string::npos);
  }
}

TEST(Connector, HearsOfAHandlerThatThrowsOrForgets) {
  const Listener throwing(plain_listen(), [](Incoming) { throw std::runtime_error("secret"); });
  const auto text = refusal(plain_dial(), here(throwing), Refusal::kOther);
  EXPECT_EQ(text.find("secret"), std::string::npos);
  const Listener forgetting(plain_listen(), [](Incoming) {});
  refusal(plain_dial(), here(forgetting), Refusal::kOther);
}

}  // namespace
}  // namespace epipe::transport
