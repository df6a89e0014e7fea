#include "epipe/monitor/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "epipe/base/clock.h"
#include "epipe/monitor/http_address.h"
#include "support/http_client.h"

namespace epipe::monitor {
namespace {

using testing::http_get;
using testing::HttpConnection;

HttpConfig two_pages() {
  HttpConfig config;
  config.address = "127.0.0.1:0";
  config.pages["/a"] = [] { return Response{.body = "this is a\n"}; };
  config.pages["/ill"] = [] { return Response{.status = 503, .body = "ill\n"}; };
  config.pages["/throws"] = []() -> Response { throw std::runtime_error("out of paper"); };
  return config;
}

TEST(HttpServer, AnswersThePagesItHas) {
  const HttpServer server(two_pages());
  const auto page = http_get(server.port(), "/a");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.body, "this is a\n");
  EXPECT_NE(page.head.find("Content-Type: text/plain; charset=utf-8"), std::string::npos) << page.head;
  EXPECT_EQ(http_get(server.port(), "/ill").status, 503);
  EXPECT_EQ(http_get(server.port(), "/a", "127.0.0.1", "HEAD").body, "");
  EXPECT_EQ(server.url(), "http://127.0.0.1:" + std::to_string(server.port()));
  EXPECT_FALSE(server.open_to_others());
}

TEST(HttpServer, SaysWhatThereIsAndWhatWentWrong) {
  const HttpServer server(two_pages());
  const auto missing = http_get(server.port(), "/b");
  EXPECT_EQ(missing.status, 404);
  EXPECT_NE(missing.body.find("/a\n"), std::string::npos) << missing.body;
  EXPECT_EQ(http_get(server.port(), "/a/../../etc/passwd").status, 404);
  EXPECT_EQ(http_get(server.port(), "/a", "127.0.0.1", "POST").status, 405);
  const auto thrown = http_get(server.port(), "/throws");
  EXPECT_EQ(thrown.status, 500);
  EXPECT_EQ(thrown.body, "out of paper\n");
}

// A name that somebody points at 127.0.0.1 would let their page read this server through a visitor's browser.
TEST(HttpServer, OnLoopbackIsNotAskedByNamesOfOthers) {
  const HttpServer server(two_pages());
  for (const std::string host : {"127.0.0.1", "127.0.0.1:9100", "localhost", "localhost:9100", "[::1]:9100"}) {
    EXPECT_EQ(http_get(server.port(), "/a", host).status, 200) << host;
  }
  for (const std::string host : {"evil.example", "evil.example:9100", "127.0.0.1.evil.example", "localhost.evil.example",
                                 "127.0.0.1:evil.example", "[::1].evil.example", "[::1]:9100.evil.example", ""}) {
    EXPECT_NE(http_get(server.port(), "/a", host).status, 200) << host;
  }
}

TEST(HttpServer, SaysThatAPortIsTaken) {
  const HttpServer first(two_pages());
  HttpConfig second = two_pages();
  second.address = "127.0.0.1:" + std::to_string(first.port());
  try {
    const HttpServer server(second);
    FAIL() << "two servers on one port";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("cannot listen on " + second.address), std::string::npos) << error.what();
  }
  EXPECT_EQ(http_get(first.port(), "/a").status, 200);
}

TEST(HttpAddress, IsHostAndPort) {
  EXPECT_EQ(parse_http_address("127.0.0.1:9100").numeric_host, "127.0.0.1");
  EXPECT_EQ(parse_http_address("[::1]:9100").numeric_host, "[::1]");
  EXPECT_TRUE(parse_http_address("[::1]:9100").loopback);
  EXPECT_TRUE(parse_http_address("localhost:0").loopback);
  EXPECT_FALSE(parse_http_address("0.0.0.0:9100").loopback);
  for (const std::string wrong : {"", "9100", ":9100", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1",
                                  "::1:9100", "[]:9100", "no such host:9100"}) {
    EXPECT_THROW(parse_http_address(wrong), std::invalid_argument) << wrong;
  }
}

TEST(HttpServer, LivesOnWhateverItIsSent) {
  const HttpServer server(two_pages());
  for (const std::string& bytes :
       {std::string(100'000, 'x'), std::string("GET /a HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ") + std::string(100'000, 'x'),
        std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11), std::string(1000, '\0'),
        std::string("GET /%00%ff%2e%2e HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
        std::string("GET /a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999\r\n\r\n")}) {
    const HttpConnection connection(server.port());
    connection.write(bytes);
    (void)connection.read();
    EXPECT_EQ(http_get(server.port(), "/a").status, 200);
  }
}

TEST(HttpServer, IsNotHeldUpForLongByThoseWhoSayNothing) {
  const HttpServer server(two_pages());
  std::vector<std::unique_ptr<HttpConnection>> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(std::make_unique<HttpConnection>(server.port()));
  for (const auto& connection : silent) connection->write("GET /a HT");
  const Stopwatch watch;
  EXPECT_EQ(http_get(server.port(), "/a").status, 200);
  EXPECT_LT(watch.seconds(), 18);
}

TEST(HttpServer, SendsEventsWhileSomebodyLooksAndEndsWithThem) {
  std::atomic<std::uint64_t> newest = 1;
  HttpConfig config = two_pages();
  config.events["/events"] = [&](std::uint64_t& seen) {
    if (seen == newest) return std::string();
    seen = newest;
    return "data: " + std::to_string(seen) + "\n\n";
  };
  auto server = std::make_unique<HttpServer>(config);
  const HttpConnection connection(server->port());
  connection.write("GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  EXPECT_NE(connection.read("data: 1\n\n").find("Content-Type: text/event-stream"), std::string::npos);
  newest = 2;
  EXPECT_NE(connection.read("data: 2\n\n").find("data: 2\n\n"), std::string::npos);
  const Stopwatch watch;
  server = nullptr;
  EXPECT_LT(watch.seconds(), 5) << "a subscriber does not keep the server";
}

TEST(HttpServer, LimitsSubscribersAndStillAnswersEverybodyElse) {
  HttpConfig config = two_pages();
  config.events["/events"] = [](std::uint64_t& seen) { return seen++ == 0 ? std::string("data: 1\n\n") : std::string(); };
  const HttpServer server(config);
  std::vector<std::unique_ptr<HttpConnection>> subscribers;
  for (int i = 0; i < 16; ++i) {
    subscribers.push_back(std::make_unique<HttpConnection>(server.port()));
    subscribers.back()->write("GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    EXPECT_NE(subscribers.back()->read("data: 1").find("200 OK"), std::string::npos);
  }
  EXPECT_EQ(http_get(server.port(), "/events").status, 503);
  EXPECT_EQ(http_get(server.port(), "/a").status, 200);
}

}  // namespace
}  // namespace epipe::monitor
