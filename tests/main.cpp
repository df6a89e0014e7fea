// main() of the test programs. There is one for each folder of tests/, with the tests of all its files; CTest runs it file by file.
//   PROGRAM [--gtest_...]                     every test
//   PROGRAM --only=codec/parse [--gtest_...]  those of tests/codec/parse_test.cpp
//   PROGRAM --covered-by=codec/parse:...      no test: fails when one is in none of these files, so that CTest would not run it
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr int kWrongUsage = 2;

std::string name_of(const testing::TestInfo& test) { return std::string(test.test_suite_name()) + "." + test.name(); }

bool is_in(const testing::TestInfo& test, const std::string& path) {
  return std::string_view(test.file()).ends_with("/tests/" + path + "_test.cpp");
}

void for_tests(const std::function<void(const testing::TestInfo&)>& use) {
  const auto& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const auto& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) use(*suite.GetTestInfo(t));
  }
}

// Leaves out the tests of other files, whatever --gtest_filter leaves out besides.
bool keep_only(const std::string& path) {
  bool found = false;
  std::string others;
  for_tests([&](const testing::TestInfo& test) {
    if (is_in(test, path)) {
      found = true;
    } else {
      others += ':';
      others += name_of(test);
    }
  });
  std::string& filter = testing::GTEST_FLAG(filter);
  if (others.empty()) return found;
  others.front() = filter.find('-') == std::string::npos ? '-' : ':';
  filter += others;
  return found;
}

// Every test is in exactly one of the files, and its name is its own.
bool covered_by(const std::string& paths) {
  std::vector<std::string> files;
  std::istringstream list(paths);
  for (std::string path; std::getline(list, path, ':');) files.push_back(path);
  bool good = true;
  std::set<std::string> names;
  for_tests([&](const testing::TestInfo& test) {
    int found = 0;
    for (const auto& path : files) found += is_in(test, path) ? 1 : 0;
    const bool is_new = names.insert(name_of(test)).second;
    if (found == 1 && is_new) return;
    std::fprintf(stderr, "%s of %s: expected %s\n", name_of(test).c_str(), test.file(),
                 is_new ? "its file in one epipe_test() of tests/CMakeLists.txt" : "a name that no other test has");
    good = false;
  });
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--covered-by=")) return covered_by(argument.substr(13)) ? 0 : 1;
    if (argument.starts_with("--only=") && keep_only(argument.substr(7))) continue;
    std::fprintf(stderr, "expected --only=PATH of a tests/PATH_test.cpp in this program or --gtest_..., got %s\n", argument.c_str());
    return kWrongUsage;
  }
  return RUN_ALL_TESTS();
}
