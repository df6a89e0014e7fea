// What an operator asks of a server that runs, and what others may not.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <nlohmann/json.hpp>
#include <random>

#include "epipe/base/clock.h"
#include "epipe/serve/admin_socket.h"
#include "serve/split.h"

namespace epipe::serve {
namespace {

using nlohmann::json;
using testing::Arguments;
using testing::kRun;
using testing::run_program;
using testing::Split;
using testing::TempFolder;
using testing::operator+;

TEST(AdminRequest, SurvivesItsLine) {
  for (const std::string line : {R"({"do":"status"})", R"({"do":"drain"})", R"({"do":"drain","seconds":2.5})",
                                 R"({"do":"end","reason":"rent is due","session":"1f2e"})"}) {
    const auto read = parse_admin_request(line);
    ASSERT_TRUE(read) << line << read.error().message;
    EXPECT_EQ(to_line(read.value()), line + "\n");
  }
}

TEST(AdminRequest, ThatNoOperatorSendsIsRefused) {
  const std::string many(5000, '[');
  for (const std::string& line : std::vector<std::string>{
           "", "{}", "[]", "status", "{\"do\":7}", R"({"do":"status","more":1})", R"({"do":"drain","seconds":-1})",
           R"({"do":"drain","seconds":1e300})", R"({"do":"drain","seconds":"1"})", R"({"do":"drain","seconds":1,"seconds":2})",
           R"({"do":"end"})", R"({"do":"end","session":"abc"})", R"({"do":"end","session":"../../etc/passwd"})",
           R"({"do":"end","session":"ABCDEF"})", R"({"do":"end","session":"abcd","reason":"a\u001b[2J"})",
           R"({"do":"end","session":"abcd","reason":")" + std::string(201, 'x') + "\"}", many,
           std::string("{\"do\":\"status\"}\0{}", 18)}) {
    EXPECT_FALSE(parse_admin_request(line)) << line.substr(0, 80);
  }
}

// A connection to the socket in this state folder.
class Asker {
 public:
  explicit Asker(const std::string& state_dir) : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (state_dir + "/admin/socket").copy(address.sun_path, sizeof(address.sun_path) - 1);
    const timeval patience{20, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) throw std::runtime_error("cannot connect");
  }
  ~Asker() { ::close(fd_); }
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;
  void say(const std::string& text) const { (void)::send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  std::string answer() const {
    std::string text;
    std::array<char, 4096> buffer;
    for (ssize_t got = 0; (got = ::recv(fd_, buffer.data(), buffer.size(), 0)) > 0;)
      text.append(buffer.data(), static_cast<std::size_t>(got));
    return text;
  }

 private:
  int fd_;
};

TEST(AdminSocket, AnswersWhateverOthersSayOrKeepForThemselves) {
  const TempFolder folder;
  const AdminSocket admin(folder.file("state"), [](const AdminRequest&) { return json{{"fine", true}}; });
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    const Asker asker(folder.file("state"));
    std::string garbage(random() % 9000, '\0');
    for (char& c : garbage) c = static_cast<char>(random());
    asker.say(garbage + "\n");
    const std::string answer = asker.answer();
    EXPECT_TRUE(answer.empty() || json::parse(answer).contains("error")) << answer;
  }
  const Asker silent(folder.file("state"));
  const Asker endless(folder.file("state"));
  endless.say(std::string(100'000, 'x'));
  const Stopwatch watch;
  EXPECT_EQ(ask_server(folder.file("state"), {}), (json{{"fine", true}}));
  EXPECT_LT(watch.seconds(), 10) << "those before had two seconds each";
}

TEST(AdminSocket, IsForItsOwnerAloneAndReplacesWhatAKilledServerLeft) {
  const TempFolder folder;
  const std::string state = folder.file(std::string(120, 's'));  // longer than the address of a socket may be
  ASSERT_EQ(::mkdir(state.c_str(), 0755), 0);
  ASSERT_EQ(::mkdir((state + "/admin").c_str(), 0777), 0);
  std::ofstream(state + "/admin/socket") << "left behind";
  {
    const AdminSocket admin(state, [](const AdminRequest&) -> json { throw std::runtime_error("not today"); });
    struct stat status {};
    ASSERT_EQ(::stat((state + "/admin").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700U);
    try {
      ask_server(state, {});
      ADD_FAILURE() << "no error";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "not today");
    }
  }
  EXPECT_THROW(ask_server(state, {}), std::runtime_error) << "nobody is there any more";
  ASSERT_NE(::access((state + "/admin").c_str(), F_OK), 0) << "and nothing is left";
  ASSERT_EQ(::symlink("/tmp", (state + "/admin").c_str()), 0);
  EXPECT_THROW(AdminSocket(state, nullptr), std::runtime_error) << "a link leads elsewhere";
}

TEST(AdminSocket, ASilentServerIsNotOneThatHasEnded) {
  const TempFolder folder;
  std::atomic<bool> over = false;
  {
    const AdminSocket admin(folder.file("state"), [&](const AdminRequest&) {
      while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return json{{"fine", true}};
    });
    try {
      ask_server(folder.file("state"), {}, 0.5);
      ADD_FAILURE() << "no error";
    } catch (const NoServer& error) {
      ADD_FAILURE() << "it runs: " << error.what();
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(std::string(error.what()).find("expected an answer from the server of " + folder.file("state") + " within"), 0U)
          << error.what();
    }
    over = true;
  }
  EXPECT_THROW(ask_server(folder.file("state"), {}), NoServer);
}

TEST(Admin, WaitingForAServerThatFallsSilentIsAnError) {
  const TempFolder folder;
  std::atomic<bool> over = false;
  const AdminSocket admin(folder.file("state"), [&](const AdminRequest& request) {
    while (request.kind == AdminRequest::Kind::kStatus && !over) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return json::object();
  });
  const auto waited = run_program("serve drain --json --wait --state-dir " + folder.file("state"));
  over = true;
  EXPECT_EQ(waited.code, 1) << waited.output;
  EXPECT_EQ(waited.output.find("the server has ended"), std::string::npos) << waited.output;
  EXPECT_NE(waited.output.find("cannot tell whether it has ended: expected an answer"), std::string::npos) << waited.output;
}

// As one that ends just now does.
TEST(AdminSocket, AServerThatHangsUpIsToldFromOneThatIsSilent) {
  const TempFolder folder;
  ASSERT_EQ(::mkdir(folder.file("admin").c_str(), 0700), 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  folder.file("admin/socket").copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int listening = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(listening, 1), 0);
  std::thread hangs_up([listening] { ::close(::accept(listening, nullptr, nullptr)); });
  EXPECT_THROW(ask_server(folder.path(), {}), ServerHungUp);
  hangs_up.join();
  ::close(listening);
  EXPECT_THROW(ask_server(folder.path(), {}), NoServer) << "its socket is still there";
}

TEST(Admin, WithoutAServerIsAClearSentence) {
  const TempFolder folder;
  for (const std::string command : {"status", "drain", "end 1234abcd"}) {
    const auto outcome = run_program("serve " + command + " --state-dir " + folder.file("none"));
    EXPECT_EQ(outcome.code, 1);
    EXPECT_NE(outcome.output.find("no server runs with --state-dir " + folder.file("none")), std::string::npos) << outcome.output;
  }
  EXPECT_EQ(run_program("serve end xyz --state-dir " + folder.file("none")).code, 2);
  EXPECT_EQ(run_program("serve drain --seconds -1 --state-dir " + folder.file("none")).code, 2);
}

class AdminOfServer : public ::testing::Test {
 protected:
  AdminOfServer() { split_.start_server(0, {"--audit-log", split_.file("audit")}); }
  testing::Outcome ask(const std::string& what) { return run_program("serve " + what + " --state-dir " + split_.file("server-0")); }
  json status() { return json::parse(ask("status --json").output); }
  // The sessions' entry of a client that has made a few steps.
  json session_at_work() {
    for (int i = 0; i < 600; ++i) {
      const json now = status();
      if (!now["sessions"].empty() && now["sessions"][0]["steps"] > 2) return now["sessions"][0];
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return json::object();
  }
  Split split_{1};
};

TEST_F(AdminOfServer, StatusShowsWhatSessionsDo) {
  EXPECT_TRUE(status()["sessions"].empty());
  const auto client = split_.start_client(split_.file("run"), kRun + Arguments{"--max-steps", "100000"});
  const json session = session_at_work();
  ASSERT_FALSE(session.empty()) << client->log();
  EXPECT_EQ(session["who"], "token");
  EXPECT_EQ(session["model"], "cnn");
  EXPECT_EQ(session["device"], "cpu");
  EXPECT_EQ(session["state"], "running");
  EXPECT_GE(session["samples"], 96);
  for (const char* name : {"bytes_received", "bytes_sent", "memory_bytes", "seconds", "device_seconds"})
    EXPECT_GT(session[name], 0) << name;
  EXPECT_LT(session["idle_seconds"], 60);
  const auto table = ask("status");
  EXPECT_EQ(table.code, 0);
  EXPECT_NE(table.output.find(session["id"].get<std::string>().substr(0, 8) + "  token "), std::string::npos) << table.output;
}

TEST_F(AdminOfServer, EndTellsTheClientWhyAndTakesTheSessionNoMore) {
  const auto unknown = ask("end 0123abcd");
  EXPECT_EQ(unknown.code, 1);
  EXPECT_NE(unknown.output.find("no session 0123abcd runs here"), std::string::npos) << unknown.output;
  const auto client = split_.start_client(split_.file("run"), kRun + Arguments{"--max-steps", "100000", "--checkpoint-every", "1"});
  const json session = session_at_work();
  ASSERT_FALSE(session.empty()) << client->log();
  const std::string id = session["id"];
  const auto ended = ask("end " + id.substr(0, 8) + " --reason 'the machine is needed'");
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(ended.output, "ended " + id + "\n");
  EXPECT_EQ(client->wait(60), 1) << client->log();
  EXPECT_NE(client->log().find("the session was ended by its operator: the machine is needed"), std::string::npos) << client->log();
  const auto again = run_program("train --resume --run-dir " + split_.file("run") + " --tls " + split_.file("tls"));
  EXPECT_EQ(again.code, 1) << again.output;
  EXPECT_NE(again.output.find("the session was ended by its operator: the machine is needed"), std::string::npos) << again.output;
  const auto other = split_.start_client(split_.file("other"), kRun + Arguments{"--max-steps", "2"});
  EXPECT_EQ(other->wait(90), 0) << other->log();
}

TEST_F(AdminOfServer, DrainLetsClientsSaveAndEndsTheServer) {
  const auto client = split_.start_client(split_.file("run"), kRun + Arguments{"--max-steps", "100000"});
  ASSERT_FALSE(session_at_work().empty()) << client->log();
  const auto drained = ask("drain --seconds 300 --wait");
  EXPECT_EQ(drained.code, 0) << drained.output;
  EXPECT_NE(drained.output.find("draining"), std::string::npos) << drained.output;
  EXPECT_NE(drained.output.find("the server has ended"), std::string::npos) << drained.output;
  EXPECT_EQ(split_.server(0).wait(20), 0) << split_.server(0).log();
  EXPECT_EQ(client->wait(60), 0) << client->log();
  EXPECT_NE(client->log().find("everything is saved"), std::string::npos) << client->log();
}

TEST_F(AdminOfServer, AServerThatIsReplacedWithoutAskingKeepsItsClients) {
  const Arguments run = kRun + Arguments{"--max-steps", "500", "--checkpoint-every", "20"};
  const std::string expected = testing::expected_weights(split_, "0,1,0", run);
  const auto client = split_.start_client(split_.file("run"), run);
  ASSERT_FALSE(session_at_work().empty()) << client->log();
  EXPECT_EQ(ask("drain --seconds 0 --wait").code, 0);
  EXPECT_EQ(split_.server(0).wait(20), 0) << split_.server(0).log();
  split_.start_server(0);
  EXPECT_EQ(client->wait(120), 0) << client->log();
  EXPECT_NE(client->log().find("connected again"), std::string::npos) << client->log();
  EXPECT_TRUE(testing::ended_with(split_.file("run"), expected)) << client->log();
}

TEST_F(AdminOfServer, DrainEndsByItsDeadlineWhateverClientsDo) {
  const auto client = split_.start_client(split_.file("run"), kRun + Arguments{"--max-steps", "100000"});
  ASSERT_FALSE(session_at_work().empty()) << client->log();
  client->signal(SIGSTOP);
  const Stopwatch watch;
  EXPECT_EQ(ask("drain --seconds 2").code, 0);
  EXPECT_EQ(status()["draining"], true);
  EXPECT_EQ(split_.server(0).wait(20), 0) << split_.server(0).log();
  EXPECT_GT(watch.seconds(), 1.5);
  client->signal(SIGCONT);
}

TEST_F(AdminOfServer, TheAuditSaysWhoDidWhatAndHowMuch) {
  const auto client = split_.start_client(split_.file("run"), kRun + Arguments{"--max-steps", "3"});
  EXPECT_EQ(client->wait(90), 0) << client->log();
  std::ofstream(split_.file("wrong")) << "guess\n";
  run_program("train --max-steps 1 --connect " + split_.address(0) + " --ca " + split_.file("tls/ca.pem") + " --token-file " +
              split_.file("wrong") + " --run-dir " + split_.file("refused"));
  ASSERT_EQ(::rename(split_.file("audit").c_str(), split_.file("audit.1").c_str()), 0);
  split_.server(0).signal(SIGHUP);
  ASSERT_TRUE(split_.server(0).says("renewed:", 20)) << split_.server(0).log();
  EXPECT_EQ(ask("drain --wait").code, 0);
  std::vector<json> lines;
  for (const std::string file : {"audit.1", "audit"}) {
    struct stat status {};
    ASSERT_EQ(::stat(split_.file(file).c_str(), &status), 0) << file;
    EXPECT_EQ(status.st_mode & 0777, 0600U);
    std::ifstream text(split_.file(file));
    for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  }
  std::vector<std::string> events;
  for (const json& line : lines) events.push_back(line["event"]);
  EXPECT_EQ(events,
            (std::vector<std::string>{"server_begin", "session_begin", "session_end", "refused", "renewed", "drain", "server_end"}));
  EXPECT_EQ(lines[2]["who"], "token");
  EXPECT_EQ(lines[2]["how"], "left");
  EXPECT_EQ(lines[2]["steps"], 3);
  EXPECT_EQ(lines[2]["samples"], 96);
  EXPECT_GT(lines[2]["bytes_received"], 1000);
  EXPECT_EQ(lines[2]["session"], lines[1]["session"]);
  EXPECT_NE(lines[3]["reason"].get<std::string>().find("token"), std::string::npos);
}

}  // namespace
}  // namespace epipe::serve
