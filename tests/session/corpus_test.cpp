// The seeds of fuzz/session_fuzz.cpp still speak the language of sessions: one that fails at its first command finds nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "epipe/base/file.h"
#include "support/session_script.h"
#include "support/temp_folder.h"

namespace epipe::session {
namespace {

const std::string kCorpus = EPIPE_SOURCE_DIR "/fuzz/corpus/session/";

// Those whose steps overlap have seeds of their own.
std::vector<std::size_t> synchronous_cases() {
  std::vector<std::size_t> cases;
  for (std::size_t of = 0; of < testing::session_cases().size(); ++of) {
    if (testing::session_cases()[of].plan.delay == 0) cases.push_back(of);
  }
  return cases;
}

std::vector<Reply> answers_to(const std::string& seed) {
  const testing::TempFolder folder;
  const auto bytes = read_file(kCorpus + seed, 1 << 16);
  if (!bytes) throw std::runtime_error(bytes.error().message);
  std::vector<Reply> answers;
  for (const Bytes& answer : testing::play(testing::read_script(bytes.value()), folder.file("checkpoints"), std::chrono::seconds(20))) {
    answers.push_back(read_reply(answer).value());
  }
  return answers;
}

std::string names(const std::vector<Reply>& replies) {
  std::string all;
  for (const Reply& reply : replies) {
    const auto* const failed = std::get_if<ErrorReply>(&reply);
    all += (all.empty() ? "" : ", ") + std::string(name_of(reply)) + (failed != nullptr ? " " + failed->error : "");
  }
  return all;
}

TEST(SessionCorpus, AProperRunIsCarriedOutToItsEnd) {
  for (const std::size_t of : synchronous_cases()) {
    EXPECT_EQ(
        names(answers_to("proper-run-" + std::to_string(of))),
        "configured, loaded, channels open, stepped, committed, committed, stepped, committed, stepped, saved, weights, restored, clock, "
        "timeline, ended")
        << of;
  }
}

TEST(SessionCorpus, AProperRunInWordsIsCarriedOutToItsEnd) {
  for (const std::size_t of : synchronous_cases()) {
    EXPECT_EQ(names(answers_to("proper-words-" + std::to_string(of))),
              "configured, loaded, channels open, stepped, committed, saved, restored, left")
        << of;
  }
}

TEST(SessionCorpus, AnAuditAndAProbeOfTheLinkAreCarriedOutToTheirEnd) {
  EXPECT_EQ(names(answers_to("proper-audit-3")), "configured, loaded, channels open, audited, link probed, stepped, committed, ended");
}

TEST(SessionCorpus, StepsThatOverlapAreCarriedOutToTheirEnd) {
  EXPECT_EQ(names(answers_to("proper-late-7")),
            "configured, loaded, channels open, overlapped, early backwards done, overlapped, early backwards done, committed, "
            "overlapped, committed, saved, weights, ended");
}

TEST(SessionCorpus, HasEveryCommandButThoseOfReplicas) {
  std::set<std::size_t> met;
  for (const std::string& seed : list_folder(kCorpus)) {
    const auto bytes = read_file(kCorpus + seed, 1 << 16);
    ASSERT_TRUE(bytes) << seed;
    for (const Bytes& command : testing::read_script(bytes.value()).commands) {
      if (const auto read = read_command(command)) met.insert(read.value().index());
    }
  }
  EXPECT_EQ(met.size(), std::variant_size_v<Command> - 1) << "a new command belongs to fuzz/session_seeds.h";
}

TEST(SessionCorpus, ARemoteStageIsCarriedOutToItsEnd) {
  for (std::size_t of = 0; of < 4; ++of) {
    const bool two = testing::session_cases()[of].plan.chunks == 2;
    const std::string actions = two ? "forward done, forward done, backward done, backward done" : "forward done, backward done";
    EXPECT_EQ(names(answers_to("proper-stage-" + std::to_string(of))),
              "configured, loaded, channels open, " + actions + ", committed, forward done, weights, ended")
        << of;
  }
}

TEST(SessionCorpus, MicroBatchesThatNobodyWaitsForAreRefusedOneByOne) {
  for (std::size_t of = 0; of < 4; ++of) {
    const auto replies = answers_to("wrong-stage-" + std::to_string(of));
    EXPECT_EQ(std::count_if(replies.begin(), replies.end(), [](const Reply& r) { return std::holds_alternative<ErrorReply>(r); }), 5)
        << of << ": " << names(replies);
    EXPECT_TRUE(std::holds_alternative<LeaveReply>(replies.back())) << of;
  }
}

TEST(SessionCorpus, HasNoSeedThatAFuzzerWouldCutShort) {
  for (const std::string& seed : list_folder(kCorpus)) {
    const auto bytes = read_file(kCorpus + seed, 1 << 16);
    ASSERT_TRUE(bytes) << seed;
    EXPECT_LE(bytes.value().size(), 4096U) << seed << ": tools/fuzz.py gives libFuzzer -max_len=4096";
  }
}

}  // namespace
}  // namespace epipe::session
