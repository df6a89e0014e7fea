// A server among strangers: what one client does, or one session, is no harm to the others.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <list>
#include <regex>
#include <thread>

#include "epipe/base/clock.h"
#include "epipe/serve/child.h"
#include "epipe/serve/sessions.h"
#include "epipe/transport/connector.h"
#include "serve/split.h"
#include "support/raw_socket.h"

namespace epipe::serve {
namespace {

using namespace std::chrono_literals;
using testing::Arguments;
using testing::kRun;
using testing::Process;
using testing::RawSocket;
using testing::run_program;
using testing::Split;
using testing::TempFolder;
using testing::operator+;

// A server that takes plaintext, for clients that are made here.
class Plain {
 public:
  explicit Plain(const Arguments& more = {}, const Arguments& before = {})
      : port_(transport::free_port()),
        server_(Arguments{"serve", "--insecure", "--listen", address(), "--state-dir", folder_.file("state")} + more,
                folder_.file("server.log"), before) {
    if (!server_.says("listening", 60)) throw std::runtime_error(server_.log());
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  int port() const { return port_; }
  Process& process() { return server_; }
  std::string log() { return server_.log(); }
  std::string file(const std::string& name) const { return folder_.file(name); }

  transport::ConnectConfig dial() const {
    transport::ConnectConfig config;
    config.address = address();
    config.insecure = true;
    return config;
  }
  std::unique_ptr<Process> start_client(const std::string& name, const Arguments& more) const {
    return std::make_unique<Process>(
        Arguments{"train", "--insecure", "--connect", address(), "--run-dir", file(name), "--timeout", "10"} + kRun + more,
        file(name + ".log"));
  }

 private:
  TempFolder folder_;
  int port_;
  Process server_;
};

std::string hex(std::size_t digits, char digit) { return std::string(digits, digit); }

std::map<std::string, std::string> commands_of(char session) {
  return {{"session", hex(32, session)}, {"ticket", hex(64, session)}, {"channel", "commands"}, {"worker", "1"}};
}

// The process of the session that the server started as its `nth`.
pid_t session_process(const std::string& log, int nth) {
  const std::regex line("session [0-9a-f]{8} for [^ ]+ in process ([0-9]+)");
  auto found = std::sregex_iterator(log.begin(), log.end(), line);
  for (int i = 0; i < nth && found != std::sregex_iterator(); ++i) ++found;
  return found == std::sregex_iterator() ? 0 : std::stoi((*found)[1]);
}

// The most memory a process has had at once, in bytes.
std::uint64_t peak_bytes(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  }
  return 0;
}

// What `epipe bench link` asks for: kind (1 echo, 4 give), size, count.
Bytes measure_request(std::uint8_t kind, std::uint64_t size, std::uint32_t count) {
  Bytes request;
  append(request, kind);
  append(request, size);
  append(request, count);
  return request;
}

TEST(Attack, AMeasurementIsAnsweredOutsideTheServersProcess) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the memory that a measurement may hold is less than a sanitizer reserves";
#endif
  Plain server;
  transport::Connector connector(server.dial());
  const auto link = connector.open({{"channel", "measure"}});
  ASSERT_TRUE(server.process().says("measurement-1 for ", 30)) << server.log();
  link->send(measure_request(4, 100'000, 3));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(link->recv(20s), Bytes(100'000)) << "nothing but zeros";
}

TEST(Attack, EchoesThatNobodyReadsDoNotGrowTheServer) {
  Plain server;
  const std::uint64_t before = peak_bytes(server.process().pid());
  transport::ConnectConfig impatient = server.dial();
  impatient.send_timeout = 3s;
  transport::Connector connector(impatient);
  std::list<std::unique_ptr<transport::Link>> links;
  for (const std::uint64_t size : {std::uint64_t{400} << 20, std::uint64_t{60} << 20}) {
    try {
      links.push_back(connector.open({{"channel", "measure"}}));
      links.back()->send(measure_request(1, size, 4));
      links.back()->send(Bytes(size));
      links.back()->send(Bytes(size));
    } catch (const transport::ConnectionLost&) {
      // Too large, or one too many.
    }
  }
  std::this_thread::sleep_for(2s);
  EXPECT_LT(peak_bytes(server.process().pid()) - before, std::uint64_t{100} << 20);
}

TEST(Attack, MeasurersTakeNoPlacesOfSessions) {
  Plain server({"--max-sessions", "1"});
  transport::Connector connector(server.dial());
  std::list<std::unique_ptr<transport::Link>> links;
  int refused = 0;
  for (int i = 0; i < 64; ++i) {
    try {
      links.push_back(connector.open({{"channel", "measure"}}));
    } catch (const transport::Refused&) {
      ++refused;
    }
  }
  EXPECT_GE(refused, 62) << "one for each credential, two in all";
  const auto client = server.start_client("run", {"--max-steps", "2", "--reconnect", "1"});
  EXPECT_EQ(client->wait(90), 0) << client->log() << server.log();
}

// A link to measure with, as soon as there is a place.
std::unique_ptr<transport::Link> measuring_link(transport::Connector& connector, double most) {
  for (const Stopwatch watch; watch.seconds() < most; std::this_thread::sleep_for(50ms)) {
    try {
      return connector.open({{"channel", "measure"}});
    } catch (const transport::Refused&) {
      // Another one measures.
    }
  }
  throw std::runtime_error("no place to measure");
}

// The process that answers the server's `nth` measurement.
pid_t measuring_process(const std::string& log, int nth) {
  const std::regex line("measurement-" + std::to_string(nth) + " for [^ ]+ in process ([0-9]+)");
  std::smatch found;
  return std::regex_search(log, found, line) ? std::stoi(found[1]) : 0;
}

// However long its process would take to start, or to notice. It is stopped here, so that it never does.
TEST(Attack, MeasurersThatVanishLeaveTheirPlaceAtOnce) {
  Plain server;
  {
    Process hasty({"bench", "link", server.address(), "--insecure"}, server.file("hasty.log"));
    ASSERT_TRUE(server.process().says("measurement-1 for ", 30)) << server.log();
    ::kill(measuring_process(server.log(), 1), SIGSTOP);
    hasty.signal(SIGKILL);  // before it is answered
    hasty.wait(10);
  }
  transport::Connector connector(server.dial());
  const auto flood = measuring_link(connector, 10);
  flood->send(measure_request(4, 1 << 20, 10'000));  // and reads one of them
  (void)flood->recv(20s);
  ::kill(measuring_process(server.log(), 2), SIGSTOP);
  flood->close();
  EXPECT_NO_THROW(measuring_link(connector, 10)) << server.log();
}

TEST(Attack, AMeasurerThatNeverEndsMakesWay) {
  Plain server;
  transport::Connector connector(server.dial());
  const auto link = connector.open({{"channel", "measure"}});
  std::atomic<bool> ended = false;
  std::thread for_ever([&] {
    try {
      for (const Stopwatch watch; watch.seconds() < 90; std::this_thread::sleep_for(100ms)) {
        link->send(measure_request(4, 1, 1));
        (void)link->recv(20s);
      }
    } catch (const std::exception&) {
      ended = true;
    }
  });
  const Stopwatch watch;
  transport::Connector other(server.dial());
  EXPECT_NO_THROW(measuring_link(other, 60)) << server.log();
  EXPECT_GT(watch.seconds(), 5) << "others let it measure for a while";
  EXPECT_LT(watch.seconds(), 40) << server.log();
  link->close();
  for_ever.join();
  EXPECT_TRUE(ended);
  EXPECT_TRUE(server.process().says("another client asks", 5)) << server.log();
}

TEST(Attack, RunningOutOfDescriptorsIsNotTheEndOfTheListener) {
  Plain server({}, {"sh", "-c", "ulimit -n 256; exec \"$0\" \"$@\""});
  {
    std::list<RawSocket> idle;
    for (int i = 0; i < 400; ++i) idle.emplace_back(server.port());
    std::this_thread::sleep_for(1s);
    EXPECT_TRUE(server.process().running());
  }
  EXPECT_TRUE(server.process().says("as many as this server takes", 10)) << server.log();
  const auto client = server.start_client("run", {"--max-steps", "2", "--reconnect", "30"});
  EXPECT_EQ(client->wait(90), 0) << client->log() << server.log();
}

TEST(Attack, ConnectionsThatSayNothingMakeWayForClients) {
  Plain server({}, {"sh", "-c", "ulimit -n 256; exec \"$0\" \"$@\""});
  std::list<RawSocket> idle;
  for (int i = 0; i < 400; ++i) idle.emplace_back(server.port());
  const auto client = server.start_client("run", {"--max-steps", "2", "--reconnect", "60"});
  EXPECT_EQ(client->wait(120), 0) << client->log() << server.log();
}

TEST(Attack, SilentLinksLoseTheirPlaces) {
  Plain server({"--max-sessions", "2", "--idle-timeout", "600"});
  transport::Connector connector(server.dial());
  const auto one = connector.open(commands_of('a'));
  const auto two = connector.open(commands_of('b'));
  const auto client = server.start_client("run", {"--max-steps", "2", "--reconnect", "100"});
  EXPECT_EQ(client->wait(150), 0) << client->log() << server.log();
  EXPECT_NE(server.log().find("its client said nothing"), std::string::npos) << server.log();
}

TEST(Attack, ACertificateHasItsShareOfTheSessions) {
  Split split(1);
  split.start_server(0, {"--max-sessions", "2"});
  const Arguments identity = {"--cert", split.file("tls/client.pem"), "--key", split.file("tls/client.key")};
  const auto one = split.start_client(split.file("a"), kRun + identity + Arguments{"--max-steps", "100000"});
  ASSERT_TRUE(one->says("epoch 0", 90)) << one->log();
  const auto two = split.start_client(split.file("b"), kRun + identity + Arguments{"--max-steps", "2", "--reconnect", "1"});
  EXPECT_EQ(two->wait(60), 1);
  EXPECT_NE(two->log().find("your credential already has 1 sessions"), std::string::npos) << two->log();
  const auto with_token = split.start_client(split.file("c"), kRun + Arguments{"--max-steps", "2"});
  EXPECT_EQ(with_token->wait(90), 0) << with_token->log();
}

TEST(Attack, ASessionThatHangsIsEndedAndHoldsNobodyUp) {
  Plain server({"--idle-timeout", "600"});
  const Arguments longer = {"--max-steps", "60", "--checkpoint-every", "5"};
  auto hung = server.start_client("hung", longer);
  ASSERT_TRUE(hung->says("epoch 0", 90)) << hung->log();
  const pid_t process = session_process(server.log(), 0);
  ASSERT_GT(process, 0) << server.log();
  ::kill(process, SIGSTOP);
  hung->signal(SIGKILL);
  hung->wait(10);
  hung = server.start_client("hung", longer + Arguments{"--resume"});
  std::this_thread::sleep_for(2s);  // it is being connected to a session that does not answer
  const Stopwatch watch;
  const auto other = server.start_client("other", {"--max-steps", "2", "--reconnect", "5"});
  EXPECT_EQ(other->wait(60), 0) << other->log() << server.log();
  EXPECT_EQ(hung->wait(120), 0) << hung->log() << server.log();
  EXPECT_NE(server.log().find("is ended: it does not take a link"), std::string::npos) << server.log();
}

TEST(Attack, ASessionThatSpinsIsEndedByTheServer) {
  Plain server({"--idle-timeout", "2", "--timeout", "2"});
  auto client = server.start_client("run", {"--max-steps", "100000"});
  ASSERT_TRUE(client->says("epoch 0", 90)) << client->log();
  const pid_t process = session_process(server.log(), 0);
  ASSERT_GT(process, 0) << server.log();
  ::kill(process, SIGSTOP);  // as good as one that spins: it keeps no limit of its own
  client->signal(SIGKILL);
  EXPECT_TRUE(server.process().says("is ended: nothing passed between it and its client", 60)) << server.log();
  EXPECT_TRUE(server.process().says("was ended by signal 9", 10)) << server.log();
}

TEST(Attack, ASessionAboveItsMemoryOrItsTimeHasToEnd) {
  RunningSession session;
  session.pid = ::getpid();
  session.activity->message(true, 1);
  EXPECT_EQ(excess_of(session), "");
  session.limits.memory_bytes = held_bytes(::getpid()) + 1'000'000'000;
  EXPECT_EQ(excess_of(session), "");
  session.limits.memory_bytes = 1'000'000;
  EXPECT_NE(excess_of(session).find("it holds "), std::string::npos);
  session.limits.seconds = 1e-9;
  EXPECT_NE(excess_of(session).find("it has used up its "), std::string::npos);
}

TEST(Attack, TheTimeToSaySomethingBeginsWithTheFirstLinkAndNotWithOthers) {
  Activity activity;
  std::this_thread::sleep_for(50ms);
  EXPECT_GT(activity.waiting_seconds(), 0.04) << "for a process that takes its time to start";
  EXPECT_FALSE(activity.was_opened());
  activity.opened();
  EXPECT_LT(activity.waiting_seconds(), 0.04);
  std::this_thread::sleep_for(50ms);
  activity.opened();
  EXPECT_GT(activity.waiting_seconds(), 0.04);
}

// What OpenBLAS and LibTorch need is measured before the first session; a limit that was accepted works.
TEST(Attack, TheLeastMemoryThatIsAcceptedIsEnoughForASmallModel) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve terabytes";
#endif
  const TempFolder folder;
  const auto refused = run_program("serve --insecure --listen 127.0.0.1:0 --session-memory 0.1 --state-dir " + folder.file("state"));
  ASSERT_EQ(refused.code, 2) << refused.output;
  std::smatch needed;
  ASSERT_TRUE(std::regex_search(refused.output, needed, std::regex("a session needs ([0-9.]+) GB"))) << refused.output;
  const double least = std::stod(needed[1]) + 0.01;
  Plain server({"--session-memory", std::to_string(least), "--idle-timeout", "5", "--timeout", "5"});
  // Products large enough for OpenBLAS to want its buffers.
  for (const std::string model : {"mlp", "transformer"}) {
    Process client({"train", "--insecure", "--connect", server.address(), "--model", model, "--batch", "128", "--chunks", "2",
                    "--max-steps", "2", "--timeout", "20", "--reconnect", "1", "--run-dir", server.file(model)},
                   server.file(model + ".log"));
    EXPECT_EQ(client.wait(90), 0) << client.log() << server.log();
  }
}

TEST(Attack, ALogThatNobodyReadsIsNotTheEndOfTheServer) {
  const TempFolder folder;
  const int port = transport::free_port();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  // The log's reader is gone after one line.
  Process server({"serve", "--insecure", "--listen", address, "--state-dir", folder.file("state")}, folder.file("server.log"),
                 {"bash", "-c", "exec \"$0\" \"$@\" 2> >(head -c 1 > /dev/null)"});
  ASSERT_TRUE(server.says("listening", 60)) << server.log();
  for (const std::string name : {"a", "b"}) {
    Process client({"train", "--insecure", "--connect", address, "--run-dir", folder.file(name), "--chunks", "1", "--max-steps", "2",
                    "--reconnect", "5"},
                   folder.file(name + ".log"));
    EXPECT_EQ(client.wait(90), 0) << client.log();
  }
  EXPECT_TRUE(server.running());
}

TEST(Attack, RefusedClientsAreCountedInTheLog) {
  Split split(1);
  split.start_server(0);
  transport::ConnectConfig dial;
  dial.address = split.address(0);
  dial.ca_pem = testing::file_bytes(split.file("tls/ca.pem"));
  dial.token = "guess";
  for (int i = 0; i < 50; ++i) EXPECT_THROW(transport::Connector(dial).open(commands_of('a')), transport::Refused);
  EXPECT_TRUE(split.server(0).says("refused ipv4:127.0.0.1:", 10)) << split.server(0).log();
  split.server(0).signal(SIGTERM);
  EXPECT_EQ(split.server(0).wait(30), 0);
  const std::string log = split.server(0).log();
  EXPECT_NE(log.find("refused 49 more times in "), std::string::npos) << log;
  EXPECT_NE(log.find(": 127.0.0.1: the token is not one that this server takes"), std::string::npos) << log;
  EXPECT_LT(std::count(log.begin(), log.end(), '\n'), 20) << "a line for each would fill the disk";
}

}  // namespace
}  // namespace epipe::serve
