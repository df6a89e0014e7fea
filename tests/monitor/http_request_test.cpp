#include "epipe/monitor/http_request.h"

#include <gtest/gtest.h>

#include <random>

namespace epipe::monitor {
namespace {

TEST(HttpRequest, IsWhatIsAskedForAndOfWhom) {
  const auto request = parse_http_request("GET /metrics?x=1 HTTP/1.1\r\nAccept: */*\r\nhOST: \t127.0.0.1:9100 \r\n\r\n");
  ASSERT_TRUE(request) << request.error().text();
  EXPECT_EQ(request.value().method, "GET");
  EXPECT_EQ(request.value().path, "/metrics");
  EXPECT_EQ(request.value().host, "127.0.0.1:9100");
  EXPECT_EQ(parse_http_request("GET / HTTP/1.0\r\n\r\n").value().host, "");
}

TEST(HttpRequest, OfAnotherFormIsRefused) {
  for (const std::string text :
       {"", "\r\n\r\n", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\n\n", "GET /\r\n\r\n", "GET / HTTP/2\r\n\r\n", "GET  / HTTP/1.1\r\n\r\n",
        "GET metrics HTTP/1.1\r\n\r\n", " GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost\r\n\r\n", "GET / HTTP/1.1\r\n: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET /\x01 HTTP/1.1\r\n\r\n", "G\tT / HTTP/1.1\r\n\r\n"}) {
    EXPECT_FALSE(parse_http_request(text)) << text;
  }
}

// Whatever the bytes are, there is an answer, and what is accepted is printable.
TEST(HttpRequest, OfAnyBytesIsReadOrRefused) {
  std::mt19937 random(7);
  const std::string valid = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/plain\r\n\r\n";
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = valid;
    for (int change = static_cast<int>(random() % 4); change >= 0; --change) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text.erase(at, random() % 8); break;
        default: text.insert(at, text.substr(random() % text.size(), random() % 16));
      }
      if (text.empty()) text = "\r\n";
    }
    const auto request = parse_http_request(text);
    if (!request) continue;
    ++accepted;
    EXPECT_EQ(request.value().path.at(0), '/');
    for (const char c : request.value().path + request.value().method) EXPECT_TRUE(c > ' ' && c < 0x7f);
  }
  EXPECT_GT(accepted, 100) << "some changes do not matter";
}

}  // namespace
}  // namespace epipe::monitor
