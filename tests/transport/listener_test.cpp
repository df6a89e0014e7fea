// What a listener knows of those who dial it, and how many it takes.
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <thread>

#include "support/greeter.h"

namespace epipe::transport {
namespace {

using namespace std::chrono_literals;
using testing::Greeter;
using testing::here;
using testing::plain_dial;
using testing::plain_listen;
using testing::refusal;

TEST(Listener, SaysWhenItsAddressIsTaken) {
  const Greeter greeter(plain_listen());
  EXPECT_THROW(Listener(plain_listen(greeter.address()), [](Incoming) {}), std::runtime_error);
}

TEST(Listener, SeesWhatALinkIsAbout) {
  Queue<std::map<std::string, std::string>> seen(8);
  const Listener listener(plain_listen(), [&](Incoming incoming) {
    seen.push(incoming.metadata());
    incoming.accept();
  });
  Connector connector(plain_dial(here(listener)));
  const std::map<std::string, std::string> about{{"session", "a b=c;~"}, {"channel", "3"}};
  connector.open(about);
  EXPECT_EQ(seen.pop(), about);
  EXPECT_THROW(connector.open({{"Upper", "x"}}), std::invalid_argument);
  EXPECT_THROW(connector.open({{"x", "two\nlines"}}), std::invalid_argument);
  EXPECT_THROW(connector.open({{"x", std::string(5000, 'x')}}), std::invalid_argument);
}

TEST(Listener, TakesNoMoreLinksThanItShould) {
  auto listen = plain_listen();
  listen.max_streams = 2;
  testing::Accepted accepted;
  const Listener listener(listen, accepted.handler());
  Connector connector(plain_dial(here(listener)));
  auto first = connector.open({});
  const auto second = connector.open({});
  refusal(plain_dial(), here(listener), Refusal::kFull);
  first.reset();
  accepted.next().reset();
  const Stopwatch watch;
  while (watch.seconds() < 10) {
    try {
      connector.open({})->close();
      return;
    } catch (const Refused&) {
      std::this_thread::sleep_for(10ms);
    }
  }
  ADD_FAILURE() << "the place of a closed link stays taken";
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

}  // namespace
}  // namespace epipe::transport
