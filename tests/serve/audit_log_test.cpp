// A log of what happened that never stops what happens.
#include "epipe/serve/audit_log.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/temp_folder.h"

namespace epipe::serve {
namespace {

using nlohmann::json;
using testing::TempFolder;

std::vector<json> audit_lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line, nullptr, false));
  return lines;
}

TEST(AuditLog, AppendsALineForEachEventWithBoundedText) {
  const TempFolder folder;
  std::ofstream(folder.file("audit")) << "{\"event\":\"of yesterday\"}\n";
  AuditLog audit(folder.file("audit"));
  audit.write("session_end", {{"who", "a\x1b[2J\nb" + std::string(10'000, 'x')}, {"steps", 7}});
  const auto lines = audit_lines(folder.file("audit"));
  ASSERT_EQ(lines.size(), 2U) << "what was there stays";
  EXPECT_EQ(lines[1]["steps"], 7);
  EXPECT_TRUE(lines[1]["who"].get<std::string>().starts_with("a?[2J?bxxx"));
  EXPECT_LE(lines[1]["who"].get<std::string>().size(), 210U);
  EXPECT_EQ(lines[1]["time"].get<std::string>().size(), std::string("2026-11-18T14:40:00Z").size());
  struct stat status {};
  ASSERT_EQ(::stat(folder.file("audit").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U) << "of a file that was open to others, too";
}

TEST(AuditLog, OnAFullDiskCountsWhatItLosesAndSaysSoLater) {
  const TempFolder folder;
  AuditLog audit(folder.file("audit"));
  audit.write("first", {{"n", 1}});
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit full{100, before.rlim_max};  // within the second line
  ::setrlimit(RLIMIT_FSIZE, &full);
  for (int i = 0; i < 5; ++i) audit.write("lost", {{"n", i}});
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(audit.lost(), 5U);
  audit.write("last", {{"n", 2}});
  const auto lines = audit_lines(folder.file("audit"));
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0]["event"], "first");
  EXPECT_TRUE(lines[1].is_discarded()) << "what fitted of a line is a line of its own";
  EXPECT_EQ(lines[2]["event"], "lines_lost");
  EXPECT_EQ(lines[2]["lines"], 5);
  EXPECT_EQ(lines[3]["event"], "last");
}

TEST(AuditLog, GoesOnInAnotherFileWhenItsOwnWasMovedAway) {
  const TempFolder folder;
  AuditLog audit(folder.file("audit"));
  audit.write("old", json::object());
  ASSERT_EQ(::rename(folder.file("audit").c_str(), folder.file("audit.1").c_str()), 0);
  audit.reopen();
  audit.write("new", json::object());
  EXPECT_EQ(audit_lines(folder.file("audit.1")).size(), 1U);
  EXPECT_EQ(audit_lines(folder.file("audit")).at(0)["event"], "new");
  ASSERT_EQ(::rename(folder.file("audit").c_str(), folder.file("audit.2").c_str()), 0);
  ASSERT_EQ(::mkdir(folder.file("audit").c_str(), 0700), 0);
  audit.reopen();
  audit.write("still", json::object());
  EXPECT_EQ(audit_lines(folder.file("audit.2")).size(), 2U) << "a folder is no file";
}

TEST(AuditLog, ThatCannotBeOpenedIsSaidAtTheStart) {
  const TempFolder folder;
  EXPECT_THROW(AuditLog(folder.file("none/audit")), std::runtime_error);
  EXPECT_THROW(AuditLog("/dev/null"), std::runtime_error) << "no file";
  ASSERT_EQ(::symlink("/dev/null", folder.file("link").c_str()), 0);
  EXPECT_THROW(AuditLog(folder.file("link")), std::runtime_error);
  EXPECT_NO_THROW(AuditLog("").write("nothing", json::object()));
}

}  // namespace
}  // namespace epipe::serve
