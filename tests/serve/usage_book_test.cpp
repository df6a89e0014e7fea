// What names have used of a day, over restarts.
#include "epipe/serve/usage_book.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "support/temp_folder.h"

namespace epipe::serve {
namespace {

using testing::TempFolder;

constexpr std::time_t kMorning = 20'000 * 86'400 + 3600;

TEST(UsageBook, SurvivesARestartWithinTheDay) {
  const TempFolder folder;
  const auto now = [] { return kMorning; };
  {
    UsageBook book(folder.file("usage.json"), now);
    book.add("ann", {1000, 1.5});
    book.add("ann", {24, 0});
    book.add("bob", {0, 0});
    book.save(true);
  }
  UsageBook again(folder.file("usage.json"), now);
  EXPECT_EQ(again.today("ann").bytes, 1024U);
  EXPECT_EQ(again.today("ann").seconds, 1.5);
  EXPECT_EQ(again.today("bob").bytes, 0U);
  struct stat status {};
  ASSERT_EQ(::stat(folder.file("usage.json").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

TEST(UsageBook, BeginsAtNothingWithTheNextDay) {
  const TempFolder folder;
  std::time_t time = kMorning;
  UsageBook book(folder.file("usage.json"), [&] { return time; });
  book.add("ann", {1000, 1});
  EXPECT_EQ(book.next_day(), 20'001 * 86'400);
  time = book.next_day() - 1;
  EXPECT_EQ(book.today("ann").bytes, 1000U);
  time += 1;
  EXPECT_EQ(book.today("ann").bytes, 0U);
  book.add("ann", {5, 0});
  book.save(true);
  time -= 86'400;  // a clock that is set back
  EXPECT_EQ(UsageBook(folder.file("usage.json"), [&] { return time; }).today("ann").bytes, 0U);
}

TEST(UsageBook, ThatIsDamagedIsBegunAnew) {
  const TempFolder folder;
  for (const std::string text :
       {"", "{", "[]", R"({"day":-1,"names":{}})", R"({"day":20000,"names":{"ann":[1]}})", R"({"day":20000,"names":{"ann":[-1,0]}})",
        R"({"day":20000,"names":{"ann":[1,-1]}})", R"({"day":20000,"names":{"../x":[1,1]}})", R"({"day":20000,"names":{"ann":["1",1]}})"}) {
    EXPECT_FALSE(parse_usage(text)) << text;
    std::ofstream(folder.file("usage.json"), std::ios::trunc) << text;
    UsageBook book(folder.file("usage.json"), [] { return kMorning; });
    EXPECT_EQ(book.today("ann").bytes, 0U);
    book.add("ann", {1, 1});
    book.save(true);
    EXPECT_EQ(UsageBook(folder.file("usage.json"), [] { return kMorning; }).today("ann").bytes, 1U);
  }
}

TEST(UsageBook, AQuotaThatIsSpentSaysWhenItBeginsAgain) {
  Client client{.name = "ann", .hashes = {}, .sessions = {}};
  EXPECT_EQ(quota_spent(client, {1ULL << 60, 1e12}, 0), "") << "no limits";
  client.bytes_per_day = 2'000'000'000;
  client.seconds_per_day = 60;
  EXPECT_EQ(quota_spent(client, {1'999'999'999, 59.9}, 0), "");
  EXPECT_EQ(quota_spent(client, {2'000'000'000, 0}, 20'001 * 86'400),
            "ann has sent and received its 2 GB of today on this server; sessions can go on from 2024-10-05T00:00:00Z");
  EXPECT_NE(quota_spent(client, {0, 60}, 20'001 * 86'400).find("its 60 device seconds of today"), std::string::npos);
}

}  // namespace
}  // namespace epipe::serve
