// Certificates and tokens that are replaced under a server that runs.
#include <gtest/gtest.h>

#include "epipe/transport/grpc/certificate.h"
#include "serve/split.h"
#include "support/http_client.h"

namespace epipe::serve {
namespace {

using testing::Arguments;
using testing::file_bytes;
using testing::kRun;
using testing::run_program;
using testing::Split;
using testing::operator+;

void write_text(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::trunc) << text; }

// A certificate of its own issuer that ends in so many days.
void write_identity(const std::string& folder, int days) {
  transport::CertificateRequest request;
  request.common_name = "localhost";
  request.names = {"localhost", "127.0.0.1"};
  request.usage = "serverAuth";
  request.days = days;
  const auto key = transport::make_key();
  const auto certificate = transport::make_certificate(request, key.get(), nullptr, nullptr);
  write_text(folder + "/server.pem", transport::pem_of(certificate.get()));
  write_text(folder + "/server.key", transport::pem_of(key.get()));
}

// What a client with this CA and this token comes to.
testing::Outcome try_client(const Split& split, const std::string& ca, const std::string& token) {
  static int number = 0;
  const std::string name = std::to_string(++number);
  write_text(split.file("ca-" + name), ca);
  write_text(split.file("token-" + name), token);
  return run_program("train --max-steps 1 --batch 8 --chunks 2 --reconnect 5 --connect " + split.address(0) + " --ca " +
                     split.file("ca-" + name) + " --token-file " + split.file("token-" + name) + " --run-dir " + split.file("try-" + name));
}

// SIGHUP, and whether the server's log says this so many times by then.
bool renewed(Split& split, const std::string& text, std::size_t times) {
  split.server(0).signal(SIGHUP);
  for (int i = 0; i < 300; ++i) {
    const std::string log = split.server(0).log();
    std::size_t found = 0;
    for (auto at = log.find(text); at != std::string::npos; at = log.find(text, at + 1)) ++found;
    if (found >= times) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

TEST(Renewal, OfCertificatesAndTokensHarmsNobodyWhoIsConnected) {
  Split split(1);
  const std::string tls = split.file("tls");
  const std::string old_ca = file_bytes(tls + "/ca.pem");
  const std::string old_token = file_bytes(tls + "/token");
  split.start_server(0, {"--max-sessions", "8"});
  const auto connected = split.start_client(split.file("connected"), kRun + Arguments{"--max-steps", "100000"});
  ASSERT_TRUE(connected->says("step", 60)) << connected->log();

  ASSERT_EQ(run_program("serve --init-tls " + split.file("new")).code, 0);
  const std::string new_ca = file_bytes(split.file("new/ca.pem"));
  const std::string new_token = file_bytes(split.file("new/token"));
  for (const std::string name : {"server.pem", "server.key", "ca.pem"}) write_text(tls + "/" + name, file_bytes(split.file("new/" + name)));
  write_text(tls + "/token", new_token + old_token);  // for a while both are valid
  ASSERT_TRUE(renewed(split, "renewed:", 1)) << split.server(0).log();
  for (const std::string& token : {new_token, old_token}) {
    const auto outcome = try_client(split, new_ca, token);
    EXPECT_EQ(outcome.code, 0) << outcome.output;
  }
  EXPECT_EQ(try_client(split, old_ca, new_token).code, 1) << "the old certificate is not shown any more";

  write_text(tls + "/token", new_token);
  ASSERT_TRUE(renewed(split, "renewed:", 2)) << split.server(0).log();
  const auto refused = try_client(split, new_ca, old_token);
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.output.find("token"), std::string::npos) << refused.output;
  EXPECT_EQ(try_client(split, new_ca, new_token).code, 0);

  EXPECT_TRUE(connected->running()) << connected->log();
  EXPECT_EQ(connected->log().find("lost"), std::string::npos) << connected->log();
  connected->signal(SIGTERM);
  EXPECT_EQ(connected->wait(60), 0) << connected->log();
}

TEST(Renewal, WithFilesThatMakeNoSenseChangesNothing) {
  Split split(1);
  const std::string tls = split.file("tls");
  const std::string ca = file_bytes(tls + "/ca.pem");
  const std::string token = file_bytes(tls + "/token");
  const std::string certificate = file_bytes(tls + "/server.pem");
  split.start_server(0, {"--max-sessions", "8"});
  std::size_t refusals = 0;
  for (const std::string& wrong : {std::string("nothing\n"), std::string(), ca}) {
    write_text(tls + "/server.pem", wrong);
    EXPECT_TRUE(renewed(split, "not renewed", ++refusals)) << split.server(0).log();
  }
  write_text(tls + "/server.pem", certificate);
  for (const std::string& wrong : {std::string("\n"), token + token}) {
    write_text(tls + "/token", wrong);
    EXPECT_TRUE(renewed(split, "not renewed", ++refusals)) << split.server(0).log();
  }
  EXPECT_EQ(split.server(0).log().find(token.substr(0, 32)), std::string::npos) << "no token is ever logged";
  write_text(tls + "/token", token);
  const std::string key = file_bytes(tls + "/server.key");
  write_identity(tls, 0);
  EXPECT_TRUE(renewed(split, "not renewed", ++refusals)) << "it has ended";
  EXPECT_EQ(try_client(split, ca, token).code, 0) << split.server(0).log();
}

TEST(Certificates, ThatHaveEndedOrWillSoonAreSaidAtTheStart) {
  Split split(1);
  const std::string tls = split.file("tls");
  split.start_server(0);
  EXPECT_NE(split.server(0).log().find("the server's certificate is valid until"), std::string::npos) << split.server(0).log();
  EXPECT_EQ(split.server(0).log().find("SIGHUP"), std::string::npos);
  write_identity(tls, 10);
  const int port = transport::free_port();
  split.start_server(0, {"--metrics", "127.0.0.1:" + std::to_string(port)});
  EXPECT_NE(split.server(0).log().find("10 days; get another one"), std::string::npos) << split.server(0).log();
  EXPECT_NE(testing::http_get(port, "/metrics").body.find("\nepipe_certificate_expiry_timestamp_seconds 1"), std::string::npos);
  write_identity(tls, 0);
  const auto ended = run_program("serve --listen 127.0.0.1:0 --tls " + tls + " --state-dir " + split.file("other"));
  EXPECT_EQ(ended.code, 1) << ended.output;
  EXPECT_NE(ended.output.find("certificate expired on"), std::string::npos) << ended.output;
}

TEST(Tokens, AreOneOnEachLineAndNoneTwice) {
  Split split(1);
  const auto start = [&](const std::string& text) {
    write_text(split.file("tls/token"), text);
    return run_program("serve --listen 127.0.0.1:0 --tls " + split.file("tls") + " --state-dir " + split.file("other"));
  };
  std::string many;
  for (int i = 0; i < 17; ++i) many += "token" + std::to_string(i) + "\n";
  for (const std::string& wrong : {std::string("\n\n"), std::string("a\nb\na\n"), many}) {
    const auto refused = start(wrong);
    EXPECT_EQ(refused.code, 2) << refused.output;
  }
}

}  // namespace
}  // namespace epipe::serve
