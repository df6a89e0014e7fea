// Who gets a session's folder, and how long it stays.
#include "epipe/serve/state_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <fstream>
#include <optional>
#include <thread>

#include "epipe/transport/refused.h"
#include "support/temp_folder.h"

namespace epipe::serve {
namespace {

const std::string kName(32, 'a');
const std::string kTicket(64, '1');
const std::string kOther(64, '2');
constexpr StateLimits kNoLimits{0, 0};

std::string name_of(char digit) { return std::string(32, digit); }

class StateStore_ : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.file("state/" + name); }
  bool there(const std::string& name) const {
    struct stat status {};
    return ::lstat(path(name).c_str(), &status) == 0;
  }
  unsigned mode(const std::string& name) const {
    struct stat status {};
    EXPECT_EQ(::lstat(path(name).c_str(), &status), 0) << name;
    return status.st_mode & 0777U;
  }
  // A server that has just started; the one before it has ended.
  StateStore& start(const StateLimits& limits = kNoLimits, int max_sessions = 4) {
    store_.reset();
    return store_.emplace(folder_.file("state"), limits, max_sessions);
  }
  // What somebody with this ticket is told; empty: welcome.
  std::string answer(const std::string& ticket, const std::string& name = kName) {
    try {
      store_->claim(name, ticket);
      return "";
    } catch (const transport::Refused& refused) {
      EXPECT_EQ(refused.why(), transport::Refusal::kUnauthenticated);
      return refused.what();
    }
  }
  // A checkpoint of so many bytes, which take no disk.
  void save(const std::string& name, std::int64_t bytes) const {
    ASSERT_TRUE(make_folders(path(name) + "/checkpoints/step-000000001"));
    const std::string file = path(name) + "/checkpoints/step-000000001/model.safetensors";
    std::ofstream(file).put('x');
    ASSERT_EQ(::truncate(file.c_str(), bytes), 0);
  }
  void set_age(const std::string& name, double days) const {
    const timespec then{std::time(nullptr) - static_cast<std::time_t>(days * 24 * 3600), 0};
    const timespec times[] = {then, then};
    for (const std::string& changed : {path(name), path(name) + "/checkpoints"}) {
      ASSERT_EQ(::utimensat(AT_FDCWD, changed.c_str(), times, 0), 0) << changed;
    }
  }
  // A session that a client left, with a checkpoint, that long ago.
  void leave(const std::string& name, std::int64_t bytes, double days) {
    if (!store_) start();
    store_->claim(name, kTicket);
    save(name, bytes);
    set_age(name, days);
  }

  testing::TempFolder folder_;
  std::optional<StateStore> store_;
};

TEST_F(StateStore_, ASessionIsForWhoShowsTheTicketItBeganWith) {
  start();
  EXPECT_EQ(answer(kTicket), "");
  save(kName, 10);
  EXPECT_EQ(answer(kOther), "not your session");
  start();
  EXPECT_EQ(answer(kOther), "not your session");
  EXPECT_EQ(answer(kTicket), "");
  EXPECT_EQ(answer(kOther, name_of('b')), "") << "another session";
}

// A file that was too long once let the next client in, and that client's ticket took its place.
TEST_F(StateStore_, ATicketFileThatIsNotAsWrittenLetsNobodyIn) {
  const std::string file = path(kName) + "/ticket";
  std::string flipped = kTicket;
  flipped[7] = 'X';
  for (const std::string& content :
       {std::string(), kTicket.substr(1), kTicket + "\n", flipped, std::string(64, '\0'), std::string(100'000, '1')}) {
    SCOPED_TRACE(::testing::Message() << content.size() << " bytes");
    leave(kName, 10, 0);
    std::ofstream(file) << content;
    EXPECT_EQ(answer(kOther), "not your session");
    EXPECT_EQ(answer(kTicket), "not your session") << "nothing tells which of the two is right";
    start();
    EXPECT_EQ(answer(kOther), "not your session") << "after a restart";
    std::ofstream(file) << kTicket;
    EXPECT_EQ(answer(kTicket), "") << "it was not overwritten, and an operator can put it right";
  }
}

TEST_F(StateStore_, ATicketThatIsMissingOrUnreadableLetsNobodyIn) {
  leave(kName, 10, 0);
  const std::string file = path(kName) + "/ticket";
  ASSERT_EQ(::unlink(file.c_str()), 0);
  EXPECT_EQ(answer(kTicket), "not your session") << "missing";
  ASSERT_TRUE(make_folders(file));
  EXPECT_EQ(answer(kTicket), "not your session") << "a folder cannot be read";
  ASSERT_TRUE(remove_tree(path(kName)));
  std::ofstream(path(kName)) << "a file where the folder should be";
  EXPECT_EQ(answer(kTicket), "not your session");
  ASSERT_TRUE(remove_tree(path(kName)));
  EXPECT_EQ(answer(kOther), "") << "without the folder a client begins anew, as the log says";
}

TEST_F(StateStore_, TheLogTellsTheOperatorOnceWhatToDoAboutADamagedTicket) {
  leave(kName, 10, 0);
  std::ofstream(path(kName) + "/ticket") << "short";
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(answer(kTicket), "not your session");
  EXPECT_EQ(answer(kTicket), "not your session");
  const std::string log = ::testing::internal::GetCapturedStderr();
  const std::string line =
      "session aaaaaaaa is refused to everybody, its ticket cannot be checked: expected 64 hex digits, got 5 bytes; remove " + path(kName) +
      " and its client can begin anew";
  EXPECT_NE(log.find(line), std::string::npos) << log;
  EXPECT_EQ(log.find(line), log.rfind(line)) << log;
  EXPECT_EQ(log.find(kTicket), std::string::npos);
}

// A crash before the rename leaves no folder of that name, and one after it leaves the ticket in it.
TEST_F(StateStore_, AFolderNeverExistsWithoutItsTicket) {
  start();
  store_.reset();
  ASSERT_TRUE(make_folders(path("new-" + kName)));  // what a crash can leave
  std::ofstream(path("new-" + kName) + "/ticket") << kOther.substr(30);
  start();
  EXPECT_FALSE(there("new-" + kName));
  EXPECT_EQ(answer(kTicket), "");
  EXPECT_EQ(answer(kOther), "not your session");
}

TEST_F(StateStore_, OfTwoFirstConnectionsWithOneNameExactlyOneWins) {
  start();
  for (int round = 0; round < 50; ++round) {
    const std::string name = std::string(30, 'c') + std::to_string(10 + round);
    std::atomic<int> ready = 0;
    std::vector<StateStore::Claim> claims(4);
    std::vector<std::thread> clients;
    for (std::size_t c = 0; c < claims.size(); ++c) {
      clients.emplace_back([&, c] {
        for (++ready; ready < 4;) std::this_thread::yield();
        try {
          claims[c] = store_->claim(name, std::string(64, static_cast<char>('0' + c)));
        } catch (const transport::Refused&) {
          // Another one was faster.
        }
      });
    }
    for (auto& client : clients) client.join();
    EXPECT_EQ(std::count_if(claims.begin(), claims.end(), [](const auto& claim) { return claim != nullptr; }), 1);
  }
}

TEST_F(StateStore_, NamesAndTicketsAreHexDigitsAndNothingElse) {
  start();
  for (const std::string& name : {std::string(), std::string("../../../../etc"), std::string(31, 'a'), std::string(31, 'a') + "/"}) {
    EXPECT_THROW(store_->claim(name, kTicket), transport::Refused) << name;
  }
  EXPECT_THROW(store_->claim(kName, ""), transport::Refused);
  EXPECT_FALSE(there(kName));
}

TEST_F(StateStore_, EverythingInItIsForThisUserAlone) {
  const mode_t before = ::umask(0);
  start();
  store_->claim(kName, kTicket);
  EXPECT_EQ(mode(""), 0700U);
  EXPECT_EQ(mode(kName), 0700U);
  EXPECT_EQ(mode(kName + "/ticket"), 0600U);
  save(kName, 10);
  ASSERT_EQ(::chmod(path(kName).c_str(), 0755), 0);
  start();
  EXPECT_EQ(mode(kName), 0700U) << "also of sessions that an earlier version began";
  ::umask(before);
}

TEST_F(StateStore_, OneServerAtATimeHasTheFolder) {
  start();
  EXPECT_THROW(StateStore(folder_.file("state"), kNoLimits, 1), std::runtime_error);
}

TEST_F(StateStore_, WhatNobodyCanContinueGoesWhenItsSessionEnds) {
  start();
  auto running = store_->claim(kName, kTicket);
  store_->clean();
  EXPECT_TRUE(there(kName)) << "it runs";
  running = nullptr;
  store_->clean();
  EXPECT_FALSE(there(kName));
  EXPECT_TRUE(list_folder(path("")).empty());
}

// As when the server has no file descriptor left.
TEST_F(StateStore_, ASessionThatCannotBeLookedIntoIsKept) {
  leave(kName, 10, 0);
  ASSERT_TRUE(rename_path(path(kName) + "/checkpoints", folder_.file("elsewhere")));
  std::ofstream(path(kName) + "/checkpoints") << "nothing that could be listed";
  start();
  EXPECT_TRUE(there(kName));
}

TEST_F(StateStore_, SessionsBeyondTheirAgeGo) {
  leave(name_of('a'), 10, 31);
  leave(name_of('b'), 10, 29);
  start({0, 30});
  EXPECT_FALSE(there(name_of('a')));
  EXPECT_TRUE(there(name_of('b')));
  start({0, 0});
  EXPECT_TRUE(there(name_of('b'))) << "0 days: for ever";
}

TEST_F(StateStore_, OverTheQuotaTheSessionsGoThatEndedLongestAgo) {
  leave(name_of('b'), 4'000'000'000, 3);
  leave(name_of('a'), 4'000'000'000, 5);
  leave(name_of('c'), 4'000'000'000, 1);
  ::testing::internal::CaptureStderr();
  start({9'000'000'000, 30});
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_FALSE(there(name_of('a')));
  EXPECT_TRUE(there(name_of('b')));
  EXPECT_TRUE(there(name_of('c')));
  EXPECT_NE(log.find("removed session aaaaaaaa: 4.000 GB, not used for 5.0 days, to stay within the 9.000 GB of --state-quota"),
            std::string::npos)
      << log;
  EXPECT_EQ(log.find("bbbbbbbb"), std::string::npos) << log;
}

TEST_F(StateStore_, ASessionThatRunsIsNeverRemoved) {
  start({9'000'000'000, 30});
  auto running = store_->claim(name_of('a'), kTicket);
  auto again = store_->claim(name_of('a'), kTicket);  // by its next process, before the last one is forgotten
  save(name_of('a'), 8'000'000'000);
  set_age(name_of('a'), 50);
  running = nullptr;
  leave(name_of('b'), 4'000'000'000, 0);
  store_->clean();
  EXPECT_TRUE(there(name_of('a'))) << "though it is older and larger";
  EXPECT_FALSE(there(name_of('b')));
  again = nullptr;
  store_->clean();
  EXPECT_TRUE(there(name_of('a'))) << "its days begin when it ends";
}

TEST_F(StateStore_, WhatIsNoSessionIsLeftAlone) {
  leave(name_of('a'), 10, 0);
  ASSERT_TRUE(make_folders(path("notes")));
  std::ofstream(path("README")) << "the operator's";
  ASSERT_TRUE(make_folders(path("removed-" + name_of('d'))));  // what a crash left of a session
  start({1, 1});
  EXPECT_FALSE(there(name_of('a')));
  EXPECT_TRUE(there("notes"));
  EXPECT_TRUE(there("README"));
  EXPECT_FALSE(there("removed-" + name_of('d')));
}

TEST_F(StateStore_, EverySessionHasItsShareOfTheQuota) {
  EXPECT_EQ(start({8'000, 0}, 4).session_bytes(), 2'000U);
  EXPECT_EQ(start({0, 0}, 4).session_bytes(), 0U) << "no limit";
  EXPECT_EQ(start({1, 0}, 4).session_bytes(), 1U) << "not no limit";
  EXPECT_GT(start({std::nullopt, 0}, 4).session_bytes(), 1U) << "of half of the disk";
}

}  // namespace
}  // namespace epipe::serve
