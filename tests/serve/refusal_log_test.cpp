#include <gtest/gtest.h>

#include "epipe/serve/refusal_log.h"

namespace epipe::serve {
namespace {

TEST(RefusalLog, SaysTheFirstOfAHostAndReasonAtOnceAndCountsTheOthers) {
  std::vector<std::string> lines;
  RefusalLog log([&](const std::string& line) { lines.push_back(line); });
  for (int port = 1; port <= 10'000; ++port) log.add("ipv4:10.0.0.1:" + std::to_string(port), "wrong token");
  log.add("ipv6:[::1]:5", "wrong token");
  log.add("10.0.0.1:7", "too many");
  EXPECT_EQ(lines, (std::vector<std::string>{"refused ipv4:10.0.0.1:1: wrong token", "refused ipv6:[::1]:5: wrong token",
                                             "refused 10.0.0.1:7: too many"}));
  log.flush();
  EXPECT_EQ(lines.size(), 3U) << "not due yet";
  log.flush(true);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[3], "refused 9999 more times in 0 s: 10.0.0.1: wrong token");
}

TEST(RefusalLog, ManyHostsAreNotToldApartForEver) {
  std::vector<std::string> lines;
  RefusalLog log([&](const std::string& line) { lines.push_back(line); });
  for (int host = 0; host < 100'000; ++host) log.add("[" + std::to_string(host) + "]:1", host % 2 == 0 ? "wrong token" : "too many");
  EXPECT_LT(lines.size(), 2000U);
  lines.clear();
  log.flush(true);
  EXPECT_EQ(lines, (std::vector<std::string>{"refused 49499 more times in 0 s: other hosts: too many",
                                             "refused 49499 more times in 0 s: other hosts: wrong token"}));
  for (int reason = 0; reason < 10'000; ++reason) log.add("[a]:1", std::to_string(reason));
  EXPECT_LT(lines.size(), 2000U) << "nor are many reasons";
}

}  // namespace
}  // namespace epipe::serve
