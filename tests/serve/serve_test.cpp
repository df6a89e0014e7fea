// Client and servers as processes, under TLS: the same weights as in one process, and clear ends where they cannot go on.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>

#include "epipe/base/file.h"
#include "serve/split.h"

namespace epipe::serve {
namespace {

using testing::Arguments;
using testing::ended_with;
using testing::expected_weights;
using testing::file_bytes;
using testing::kRun;
using testing::run_program;
using testing::Split;
using testing::operator+;

TEST(Serve, ASplitRunGivesTheWeightsOfOneProcess) {
  Split split(1);
  split.start_server(0);
  for (const std::string codec : {"none", "sort:6+2", "auto"}) {
    const Arguments arguments = kRun + Arguments{"--codec", codec, "--max-steps", "15", "--schedule", "1f1b"};
    const std::string run_dir = split.file("split-" + codec.substr(0, 4));
    const auto client = split.start_client(run_dir, arguments);
    ASSERT_EQ(client->wait(60), 0) << client->log() << split.server(0).log();
    EXPECT_TRUE(ended_with(run_dir, expected_weights(split, "0,1,0", arguments))) << codec;
  }
  EXPECT_TRUE(testing::holds_no_sessions(split.file("server-0"))) << "ended sessions leave nothing behind";
}

// Of each worker: when its actions began and ended in the client's trace, in microseconds.
std::map<int, std::pair<double, double>> actions_by_worker(const std::string& run_dir) {
  std::map<int, std::pair<double, double>> spans;
  std::ifstream file(run_dir + "/trace.json");
  const auto trace = nlohmann::json::parse(file);
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || (event.at("cat") != "forward" && event.at("cat") != "backward")) continue;
    const double begin = event.at("ts");
    auto [span, fresh] = spans.try_emplace(event.at("tid").get<int>(), begin, begin);
    span->second.first = std::min(span->second.first, begin);
    span->second.second = std::max(span->second.second, begin + event.at("dur").get<double>());
  }
  return spans;
}

TEST(Serve, TheTraceShowsTheServersWorkersByTheClientsClock) {
  Split split(2);
  split.start_server(0);
  split.start_server(1);
  const auto client = split.start_client(split.file("ring"), kRun + Arguments{"--max-steps", "5"});
  ASSERT_EQ(client->wait(60), 0) << client->log();
  const auto workers = actions_by_worker(split.file("ring"));
  ASSERT_EQ(workers.size(), 3U);
  for (const int server : {1, 2}) {  // what a server does lies between the client's first and last stage
    EXPECT_GT(workers.at(server).first, workers.at(0).first);
    EXPECT_LT(workers.at(server).second, workers.at(0).second);
  }
}

TEST(Serve, ARobertaIsDescribedToTheServerWhichOpensNoFileOfTheClients) {
  Split split(1);
  split.start_server(0);
  ASSERT_TRUE(make_folders(split.file("small")));
  std::ofstream(split.file("small/config.json"))
      << R"({"model_type": "roberta", "vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 2,
      "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 66})";
  const Arguments arguments = {"--model", "roberta:" + split.file("small"), "--batch", "8", "--chunks", "2", "--max-steps", "3"};
  const auto client = split.start_client(split.file("a"), arguments);
  ASSERT_EQ(client->wait(60), 0) << client->log() << split.server(0).log();
  EXPECT_TRUE(ended_with(split.file("a"), expected_weights(split, "0,1,0", arguments)));
}

TEST(Serve, TooLittleMemoryForAnySessionIsSaidWhenTheServerStarts) {
  const testing::TempFolder folder;
  const auto refused = run_program("serve --listen 127.0.0.1:0 --insecure --session-memory 0.05 --state-dir " + folder.file("state"));
  EXPECT_EQ(refused.code, 2);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const char* const needed = "a session needs ";  // sanitizers reserve terabytes
#else
  const char* const needed = "a session needs 0.";
#endif
  EXPECT_NE(refused.output.find(needed), std::string::npos) << refused.output;
  EXPECT_NE(refused.output.find("but may hold 0.05; give --session-memory more"), std::string::npos) << refused.output;
}

TEST(Serve, TellsItsClientsNothingOfItsFiles) {
  Split split(1);
  split.start_server(0);
  ASSERT_TRUE(remove_tree(split.file("server-0")));
  std::ofstream(split.file("server-0")) << "a file where the folder of all sessions was";
  const auto client = split.start_client(split.file("a"), kRun + Arguments{"--reconnect", "1"});
  ASSERT_EQ(client->wait(60), 1) << client->log();
  EXPECT_NE(client->log().find("not your session"), std::string::npos) << client->log();
  EXPECT_EQ(client->log().find("server-0"), std::string::npos) << client->log();
  EXPECT_TRUE(split.server(0).says(split.file("server-0"), 10)) << split.server(0).log();
}

TEST(Serve, SeveralServersFormTheRing) {
  Split split(2);
  split.start_server(0);
  split.start_server(1);
  const Arguments arguments = kRun + Arguments{"--codec", "sort:6+2", "--max-steps", "15"};
  const auto client = split.start_client(split.file("ring"), arguments);
  ASSERT_EQ(client->wait(60), 0) << client->log() << split.server(0).log() << split.server(1).log();
  EXPECT_TRUE(ended_with(split.file("ring"), expected_weights(split, "0,1,2,0", arguments)));
}

TEST(Serve, SeveralClientsAtOnceDoNotMeet) {
  Split split(1);
  split.start_server(0, {"--max-sessions", "2"});
  const Arguments arguments = kRun + Arguments{"--max-steps", "40"};
  const auto one = split.start_client(split.file("a"), arguments);
  const auto two = split.start_client(split.file("b"), arguments);
  ASSERT_EQ(one->wait(60), 0) << one->log();
  ASSERT_EQ(two->wait(60), 0) << two->log();
  EXPECT_TRUE(ended_with(split.file("a"), file_bytes(split.file("b/model.safetensors"))));
}

TEST(Serve, AFullServerRefusesAndSaysSo) {
  Split split(1);
  split.start_server(0, {"--max-sessions", "1"});
  const auto one = split.start_client(split.file("a"), kRun + Arguments{"--max-steps", "100000"});
  ASSERT_TRUE(one->says("epoch 0", 60)) << one->log();
  const auto two = split.start_client(split.file("b"), kRun + Arguments{"--max-steps", "2", "--reconnect", "1"});
  EXPECT_EQ(two->wait(60), 1);
  EXPECT_NE(two->log().find("the server already has 1 sessions, its limit; try again later"), std::string::npos) << two->log();
  EXPECT_TRUE(one->running());
}

TEST(Serve, ARefusedPlanDoesNotKeepItsPlace) {
  Split split(1);
  split.start_server(0, {"--max-sessions", "1", "--in-flight", "3"});
  const auto refused = split.start_client(split.file("a"), {"--chunks", "4", "--max-steps", "2"});
  ASSERT_EQ(refused->wait(30), 1) << refused->log();
  const auto next = split.start_client(split.file("b"), kRun + Arguments{"--max-steps", "2", "--reconnect", "30"});
  EXPECT_EQ(next->wait(60), 0) << next->log() << split.server(0).log();
}

TEST(Serve, AClientThatFindsNobodySaysWhatItTries) {
  Split split(1);
  const auto client = split.start_client(split.file("a"), kRun + Arguments{"--max-steps", "2", "--reconnect", "1"});
  EXPECT_EQ(client->wait(60), 1);
  EXPECT_NE(client->log().find("cannot connect: " + split.address(0)), std::string::npos) << client->log();
  EXPECT_NE(client->log().find("trying for 1 s"), std::string::npos) << client->log();
  EXPECT_EQ(client->log().find("--resume"), std::string::npos) << "nothing was saved: " << client->log();
  EXPECT_NE(::access(split.file("a").c_str(), F_OK), 0) << "nothing was trained";
}

TEST(Serve, AWrongTokenIsRefusedAtOnce) {
  Split split(1);
  split.start_server(0);
  const std::string wrong = split.file("wrong-token");
  std::ofstream(wrong) << "0123456789abcdef\n";
  const auto client = split.start_client(split.file("a"), kRun + Arguments{"--max-steps", "2", "--token-file", wrong});
  EXPECT_EQ(client->wait(30), 1);
  EXPECT_EQ(client->log().find("0123456789abcdef"), std::string::npos) << "tokens are never shown";
  EXPECT_NE(client->log().find("the token is not one that this server takes"), std::string::npos) << client->log();
}

TEST(Serve, AServerThatTlsDoesNotTrustEndsARunAtItsBeginning) {
  Split split(1);
  split.start_server(0);
  ASSERT_EQ(run_program("serve --init-tls " + split.file("other")).code, 0);
  const Arguments other{"--max-steps", "2", "--ca", split.file("other/ca.pem"), "--reconnect", "300"};
  const auto client = split.start_client(split.file("a"), kRun + other);
  EXPECT_EQ(client->wait(30), 1);
  EXPECT_NE(client->log().find("does it speak TLS, with a certificate for this name that --ca signed?"), std::string::npos)
      << client->log();
}

TEST(Serve, AScheduleThatNeedsMoreThanTheServerAllowsIsRefusedWithTheNumber) {
  Split split(1);
  split.start_server(0, {"--in-flight", "3"});
  const auto client = split.start_client(split.file("a"), {"--chunks", "4", "--max-steps", "2"});
  EXPECT_EQ(client->wait(30), 1);
  EXPECT_NE(client->log().find("holds 4 micro-batches here at once, but this server allows 3"), std::string::npos) << client->log();
}

TEST(Serve, AMessageAboveTheLimitIsRefused) {
  Split split(1);
  split.start_server(0, {"--max-message", "1000"});
  const auto client = split.start_client(split.file("a"), kRun + Arguments{"--max-steps", "2", "--reconnect", "1"});
  EXPECT_EQ(client->wait(60), 1) << "the weights do not fit into 1000 bytes: " << client->log();
}

TEST(Serve, ASessionThatHadItsTimeIsOver) {
  Split split(1);
  split.start_server(0, {"--session-time", "1"});
  const auto client =
      split.start_client(split.file("a"), Arguments{"--chunks", "1", "--batch", "32", "--epochs", "5000", "--reconnect", "3"});
  EXPECT_EQ(client->wait(60), 1) << client->log();
  EXPECT_NE(client->log().find("has used up its 1 seconds on this server"), std::string::npos) << client->log();
}

TEST(Serve, DialsOnlyTheServersItsOperatorListed) {
  Split split(2);
  split.start_server_with_peers(0, "127.0.0.1:1");
  split.start_server(1);
  const auto client = split.start_client(split.file("a"), kRun + Arguments{"--max-steps", "2"});
  EXPECT_EQ(client->wait(30), 1);
  EXPECT_NE(client->log().find("may not dial " + split.address(1)), std::string::npos) << client->log();
}

// Opens a connection, says something, and leaves.
void send_garbage(int port, const std::string& bytes) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  (void)::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  ::close(socket);
}

TEST(Serve, GarbageOnThePortHarmsNobody) {
  Split split(1);
  split.start_server(0);
  std::string garbage(5000, '\0');
  for (std::size_t i = 0; i < garbage.size(); ++i) garbage[i] = static_cast<char>(i * 2654435761U >> 7U);
  for (const std::string& bytes : {garbage, std::string("GET / HTTP/1.1\r\n\r\n"), std::string()}) send_garbage(split.port(0), bytes);
  const auto client = split.start_client(split.file("a"), kRun + Arguments{"--max-steps", "2"});
  EXPECT_EQ(client->wait(60), 0) << client->log() << split.server(0).log();
}

TEST(Serve, ARunThatTheServerHasForgottenIsNotBegunAnewUnderItsName) {
  Split split(1);
  split.start_server(0);
  const auto with = [](const char* steps) { return kRun + Arguments{"--checkpoint-every", "5", "--max-steps", steps}; };
  ASSERT_EQ(split.start_client(split.file("a"), with("15"))->wait(60), 0);
  const auto metrics = file_bytes(split.file("a/metrics.jsonl"));
  const auto longer = split.start_client(split.file("a"), with("25") + Arguments{"--resume"});
  EXPECT_EQ(longer->wait(60), 1) << longer->log();
  EXPECT_NE(longer->log().find("cannot resume: no checkpoint is with all processes; here: of step 15 and 10"), std::string::npos)
      << longer->log();
  EXPECT_EQ(file_bytes(split.file("a/metrics.jsonl")), metrics);
  const auto over = split.start_client(split.file("a"), with("15") + Arguments{"--resume"});
  EXPECT_EQ(over->wait(60), 0) << over->log();
  EXPECT_NE(over->log().find("all 15 steps were done before"), std::string::npos) << over->log();
}

// The operator stops the server: clients save and leave, and continue with the next one.
TEST(Serve, ADrainedServerLosesNothing) {
  Split split(1);
  split.start_server(0);
  const Arguments arguments = kRun + Arguments{"--max-steps", "300", "--codec", "power:2"};
  auto client = split.start_client(split.file("a"), arguments);
  for (int i = 0; i < 6000 && file_bytes(split.file("a/metrics.jsonl")).empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  split.server(0).signal(SIGTERM);
  ASSERT_EQ(client->wait(60), 0) << client->log();
  const std::string command = "train --resume --run-dir " + split.file("a") + " --tls " + split.file("tls");
  EXPECT_NE(client->log().find(command + "\n"), std::string::npos) << client->log();
  ASSERT_EQ(split.server(0).wait(60), 0) << split.server(0).log();
  split.start_server(0);
  const auto resumed = testing::run_program(command);
  ASSERT_EQ(resumed.code, 0) << resumed.output;
  EXPECT_TRUE(ended_with(split.file("a"), expected_weights(split, "0,1,0", arguments)));
}

}  // namespace
}  // namespace epipe::serve
