#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>
#include <thread>

#include "epipe/base/clock.h"
#include "support/fabrics.h"
#include "support/raw_socket.h"

// What a listener does with strangers, and a dialer with listeners it cannot trust.
namespace epipe::transport {
namespace {

using namespace std::chrono_literals;
using testing::plain_dial;
using testing::plain_listen;
using testing::tls_dial;
using testing::tls_files;
using testing::tls_listen;

std::string here(const Listener& listener) { return "127.0.0.1:" + std::to_string(listener.port()); }

// A listener that answers every link with one message.
class Greeter {
 public:
  explicit Greeter(const ListenConfig& config)
      : listener_(config, [](Incoming incoming) {
          const std::string name = incoming.certificate_name();
          const auto link = incoming.accept();
          Bytes greeting(name.size());
          std::memcpy(greeting.data(), name.data(), name.size());
          link->send(greeting);
        }) {}
  std::string address() const { return here(listener_); }
  int port() const { return listener_.port(); }

 private:
  Listener listener_;
};

// The common name the listener saw.
std::string greeted(DialConfig dial, const std::string& address) {
  dial.address = address;
  Dialer dialer(dial);
  const Bytes greeting = dialer.open({})->recv(20s);
  return {reinterpret_cast<const char*>(greeting.data()), greeting.size()};
}

// Why it was refused; fails the test when it was not.
std::string refusal(DialConfig dial, const std::string& address, std::optional<Refusal> why) {
  dial.address = address;
  Dialer dialer(dial);
  const Stopwatch watch;
  std::string text;
  try {
    dialer.open({});
    ADD_FAILURE() << "accepted";
  } catch (const Refused& refused) {
    EXPECT_EQ(why, refused.why()) << refused.what();
    text = refused.what();
  } catch (const Lost& lost) {
    EXPECT_FALSE(why.has_value()) << lost.what();
    text = lost.what();
  }
  EXPECT_LT(watch.seconds(), 10.0);
  return text;
}

TEST(Tls, TheRightTokenOpensALink) {
  const Greeter greeter(tls_listen());
  EXPECT_EQ(greeted(tls_dial(), greeter.address()), "");
}

TEST(Tls, AWrongTokenOrNoneIsRefusedWithoutBeingShown) {
  const Greeter greeter(tls_listen());
  auto dial = tls_dial();
  for (const std::string& token :
       {std::string(), std::string("guess"), tls_files().token + "0", tls_files().token.substr(1), tls_files().ca.substr(30, 20)}) {
    dial.token = token;
    const auto text = refusal(dial, greeter.address(), Refusal::kUnauthenticated);
    EXPECT_NE(text.find("token"), std::string::npos) << text;
    EXPECT_TRUE(token.empty() || text.find(token) == std::string::npos) << text;
    EXPECT_EQ(text.find(tls_files().token), std::string::npos) << text;
  }
  EXPECT_EQ(greeted(tls_dial(), greeter.address()), "");
}

TEST(Tls, EveryListedTokenIsAccepted) {
  auto listen = tls_listen();
  listen.tokens = {"first", "second"};
  const Greeter greeter(listen);
  auto dial = tls_dial();
  for (const char* const token : {"first", "second"}) {
    dial.token = token;
    EXPECT_EQ(greeted(dial, greeter.address()), "");
  }
}

TEST(Tls, AServerOfAnotherCaIsNotTrusted) {
  const auto others = testing::make_tls_files();
  const Greeter greeter(tls_listen());
  auto dial = tls_dial();
  dial.ca_pem = others.ca;
  refusal(dial, greeter.address(), std::nullopt);
}

TEST(Tls, AServerOfAnotherNameIsNotTrusted) {
  const Greeter greeter(tls_listen());
  auto dial = tls_dial();
  dial.server_name = "elsewhere.example";
  refusal(dial, greeter.address(), std::nullopt);
  dial.server_name = "localhost";
  EXPECT_EQ(greeted(dial, greeter.address()), "");
}

TEST(Tls, AClientCertificateReplacesTheToken) {
  auto listen = tls_listen();
  listen.client_ca_pem = tls_files().ca;
  listen.tokens = {};
  const Greeter greeter(listen);
  auto dial = tls_dial();
  dial.token = "";
  dial.identity = tls_files().client;
  EXPECT_EQ(greeted(dial, greeter.address()), "epipe client");
  dial.identity.reset();
  refusal(dial, greeter.address(), Refusal::kUnauthenticated);
}

TEST(Tls, AClientCertificateOfAnotherCaIsRefused) {
  auto listen = tls_listen();
  listen.client_ca_pem = tls_files().ca;
  const Greeter greeter(listen);
  auto dial = tls_dial();
  dial.identity = testing::make_tls_files().client;
  refusal(dial, greeter.address(), std::nullopt);
}

TEST(Tls, PlaintextToATlsListenerFails) {
  const Greeter greeter(tls_listen());
  refusal(plain_dial(), greeter.address(), std::nullopt);
}

TEST(Tls, ATlsDialerDoesNotTalkToAPlaintextListener) {
  const Greeter greeter(plain_listen());
  refusal(tls_dial(), greeter.address(), std::nullopt);
}

TEST(Plaintext, StaysOnThisMachine) {
  for (const char* const address : {"0.0.0.0:0", "192.168.1.1:80", "[::]:0", "example.com:443", "10.0.0.1:1", "127.0.0.1.example.com:1"}) {
    EXPECT_THROW(Dialer{plain_dial(address)}, std::invalid_argument) << address;
    EXPECT_THROW(Listener(plain_listen(address), [](Incoming) {}), std::invalid_argument) << address;
  }
  for (const char* const address : {"127.0.0.1:1", "127.1.2.3:1", "[::1]:1", "localhost:1", "unix:/tmp/x"}) {
    EXPECT_NO_THROW(Dialer{plain_dial(address)}) << address;
  }
}

TEST(Addresses, ThatMakeNoSenseAreRefused) {
  for (const char* const address :
       {"", "host", ":1", "host:", "host:x", "host:70000", "host:-1", "dns:///host:1", "a/b:1", "::1:80", "unix:"}) {
    EXPECT_THROW(Dialer{plain_dial(address)}, std::invalid_argument) << address;
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
  EXPECT_THROW(Dialer{dial}, std::invalid_argument);
  dial.ca_pem = "";
  EXPECT_THROW(Dialer{dial}, std::invalid_argument);
  dial = tls_dial();
  dial.address = "localhost:1";
  dial.token = "two\nlines";
  EXPECT_THROW(Dialer{dial}, std::invalid_argument);
}

TEST(Listener, SaysWhenItsAddressIsTaken) {
  const Greeter greeter(plain_listen());
  EXPECT_THROW(Listener(plain_listen(greeter.address()), [](Incoming) {}), std::runtime_error);
}

TEST(Dialer, SaysWhenNobodyListens) {
  const auto text = refusal(plain_dial(), "127.0.0.1:" + std::to_string(free_port()), std::nullopt);
  EXPECT_NE(text.find("127.0.0.1"), std::string::npos);
}

TEST(Dialer, GivesUpOnAListenerThatDoesNotAnswer) {
  const Listener listener(plain_listen(), [](Incoming) { std::this_thread::sleep_for(2s); });
  auto dial = plain_dial();
  dial.connect_timeout = 200ms;
  const Stopwatch watch;
  const auto text = refusal(dial, here(listener), std::nullopt);
  EXPECT_NE(text.find("200 ms"), std::string::npos) << text;
  EXPECT_LT(watch.seconds(), 2.0);
}

TEST(Dialer, HearsWhyItWasRefused) {
  for (const auto why : {Refusal::kFull, Refusal::kNotFound, Refusal::kOther, Refusal::kVersion}) {
    const Listener listener(plain_listen(), [why](Incoming incoming) { incoming.refuse(why, "session 7 says no"); });
    EXPECT_NE(refusal(plain_dial(), here(listener), why).find("session 7 says no"), std::string::npos);
  }
}

TEST(Dialer, HearsOfAHandlerThatThrowsOrForgets) {
  const Listener throwing(plain_listen(), [](Incoming) { throw std::runtime_error("secret"); });
  const auto text = refusal(plain_dial(), here(throwing), Refusal::kOther);
  EXPECT_EQ(text.find("secret"), std::string::npos);
  const Listener forgetting(plain_listen(), [](Incoming) {});
  refusal(plain_dial(), here(forgetting), Refusal::kOther);
}

TEST(Listener, SeesWhatALinkIsAbout) {
  Queue<std::map<std::string, std::string>> seen(8);
  const Listener listener(plain_listen(), [&](Incoming incoming) {
    seen.push(incoming.about());
    incoming.accept();
  });
  Dialer dialer(plain_dial(here(listener)));
  const std::map<std::string, std::string> about{{"session", "a b=c;~"}, {"channel", "3"}};
  dialer.open(about);
  EXPECT_EQ(seen.pop(), about);
  EXPECT_THROW(dialer.open({{"Upper", "x"}}), std::invalid_argument);
  EXPECT_THROW(dialer.open({{"x", "two\nlines"}}), std::invalid_argument);
  EXPECT_THROW(dialer.open({{"x", std::string(5000, 'x')}}), std::invalid_argument);
}

TEST(Listener, TakesNoMoreLinksThanItShould) {
  auto listen = plain_listen();
  listen.max_streams = 2;
  testing::Accepted accepted;
  const Listener listener(listen, accepted.handler());
  Dialer dialer(plain_dial(here(listener)));
  auto first = dialer.open({});
  const auto second = dialer.open({});
  refusal(plain_dial(), here(listener), Refusal::kFull);
  first.reset();
  accepted.next().reset();
  const Stopwatch watch;
  while (watch.seconds() < 10) {
    try {
      dialer.open({})->close();
      return;
    } catch (const Refused&) {
      std::this_thread::sleep_for(10ms);
    }
  }
  ADD_FAILURE() << "the place of a closed link stays taken";
}

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

// A client that speaks gRPC, but not as a dialer does.
class Stranger final : public ::grpc::ClientBidiReactor<::grpc::ByteBuffer, ::grpc::ByteBuffer> {
 public:
  Stranger(int port, const std::string& method, const std::map<std::string, std::string>& metadata)
      : channel_(::grpc::CreateChannel("127.0.0.1:" + std::to_string(port), ::grpc::InsecureChannelCredentials())), stub_(channel_) {
    for (const auto& [key, value] : metadata) context_.AddMetadata(key, value);
    stub_.PrepareBidiStreamingCall(&context_, method, {}, this);
    AddHold();
    StartCall();
    StartRead(&answer_);
  }
  void send(const std::string& piece) {
    const ::grpc::Slice slice(piece);
    piece_ = ::grpc::ByteBuffer(&slice, 1);
    StartWrite(&piece_);
    written_.pop();
  }
  ::grpc::Status end() {
    RemoveHold();
    return over_.pop();
  }

 private:
  void OnWriteDone(bool /*ok*/) override { written_.push(true); }
  void OnDone(const ::grpc::Status& status) override { over_.push(status); }

  std::shared_ptr<::grpc::Channel> channel_;
  ::grpc::GenericStub stub_;
  ::grpc::ClientContext context_;
  ::grpc::ByteBuffer piece_;
  ::grpc::ByteBuffer answer_;
  Queue<bool> written_{8};
  Queue<::grpc::Status> over_{1};
};

std::string header(std::uint64_t length) { return {reinterpret_cast<const char*>(&length), sizeof(length)}; }

TEST(Listener, RefusesOtherVersionsAndMethods) {
  const Greeter greeter(plain_listen());
  for (const auto& [method, metadata, expected] :
       std::vector<std::tuple<std::string, std::map<std::string, std::string>, ::grpc::StatusCode>>{
           {"/epipe.Link/Open", {{"epipe-version", "2"}}, ::grpc::StatusCode::FAILED_PRECONDITION},
           {"/epipe.Link/Open", {}, ::grpc::StatusCode::FAILED_PRECONDITION},
           {"/epipe.Link/Close", {{"epipe-version", "1"}}, ::grpc::StatusCode::UNIMPLEMENTED}}) {
    Stranger stranger(greeter.port(), method, metadata);
    EXPECT_EQ(stranger.end().error_code(), expected) << method;
  }
}

// The answer of the health service: 1 is serving, 2 is not.
int health_of(int port) {
  const auto channel = ::grpc::CreateChannel("127.0.0.1:" + std::to_string(port), ::grpc::InsecureChannelCredentials());
  ::grpc::GenericStub stub(channel);
  ::grpc::ClientContext context;
  const ::grpc::Slice nothing;
  const ::grpc::ByteBuffer question(&nothing, 1);
  ::grpc::ByteBuffer answer;
  Queue<::grpc::Status> done(1);
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &question, &answer,
                 [&](const ::grpc::Status& status) { done.push(status); });
  const auto status = done.pop();
  ::grpc::Slice bytes;
  if (!status.ok() || !answer.DumpToSingleSlice(&bytes).ok() || bytes.size() != 2) return -1;
  return bytes.begin()[1];
}

TEST(Listener, AnswersTheHealthService) {
  Listener listener(plain_listen(), [](Incoming) {});
  EXPECT_EQ(health_of(listener.port()), 1);
  listener.set_serving(false);
  EXPECT_EQ(health_of(listener.port()), 2);
  listener.set_serving(true);
  EXPECT_EQ(health_of(listener.port()), 1);
}

// What recv() says about pieces that no dialer sends.
std::string complaint_about(const std::vector<std::string>& pieces) {
  auto listen = plain_listen();
  listen.max_message_bytes = 1000;
  testing::Accepted accepted;
  const Listener listener(listen, accepted.handler());
  Stranger stranger(listener.port(), "/epipe.Link/Open", {{"epipe-version", "1"}});
  const auto link = accepted.next();
  for (const auto& piece : pieces) stranger.send(piece);
  std::string text = "nothing was thrown";
  try {
    while (true) link->recv(5s);
  } catch (const Lost& lost) {
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
  EXPECT_THROW(a->recv(20s), Lost);
}

TEST(InitTls, MakesFilesForTheOwnerOnlyAndOverwritesNothing) {
  const testing::TempFolder folder;
  const std::string inside = folder.file("tls");
  ASSERT_TRUE(init_tls(inside, {"server.example", "10.1.2.3"}).ok());
  const std::vector<std::string> names{"ca.key", "ca.pem", "client.key", "client.pem", "server.key", "server.pem", "token"};
  auto found = list_folder(inside);
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, names);
  for (const auto& name : names) {
    struct stat status {};
    ASSERT_EQ(::stat((inside + "/" + name).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600) << name;
  }
  EXPECT_EQ(testing::read_text(inside + "/token").size(), 65U);
  const auto before = testing::read_text(inside + "/token");
  EXPECT_FALSE(init_tls(inside, {}).ok());
  EXPECT_EQ(testing::read_text(inside + "/token"), before);
  EXPECT_FALSE(init_tls(folder.file("other"), {"not a name,DNS:evil"}).ok());
}

TEST(InitTls, TheNamesItIsGivenAreTrusted) {
  const testing::TempFolder folder;
  ASSERT_TRUE(init_tls(folder.path(), {"server.example"}).ok());
  auto listen = tls_listen();
  listen.identity = Identity{testing::read_text(folder.file("server.pem")), testing::read_text(folder.file("server.key"))};
  const Greeter greeter(listen);
  auto dial = tls_dial();
  dial.ca_pem = testing::read_text(folder.file("ca.pem"));
  dial.server_name = "server.example";
  EXPECT_EQ(greeted(dial, greeter.address()), "");
  EXPECT_EQ(greeted(dial, "localhost:" + std::to_string(greeter.port())), "");
}

}  // namespace
}  // namespace epipe::transport
