// The seeds of fuzz/session_fuzz.cpp still speak the language of sessions: one that fails at its first command finds nothing.
#include <gtest/gtest.h>

#include "epipe/base/file.h"
#include "support/session_script.h"
#include "support/temp_folder.h"

namespace epipe::train {
namespace {

const std::string kCorpus = EPIPE_SOURCE_DIR "/fuzz/corpus/session/";

std::vector<Message> answers_to(const std::string& seed) {
  const testing::TempFolder folder;
  const auto bytes = read_file(kCorpus + seed, 1 << 16);
  if (!bytes) throw std::runtime_error(bytes.error().message);
  std::vector<Message> answers;
  for (const Bytes& answer : testing::play(testing::read_script(bytes.value()), folder.file("checkpoints"), std::chrono::seconds(20))) {
    answers.push_back(read_message(answer).value());
  }
  return answers;
}

std::string kinds(const std::vector<Message>& answers) {
  std::string all;
  for (const Message& answer : answers) all += (all.empty() ? "" : " ") + answer.kind + answer.fields.value("error", "");
  return all;
}

TEST(SessionCorpus, AProperRunIsObeyedToItsEnd) {
  for (std::size_t of = 0; of < testing::session_cases().size(); ++of) {
    EXPECT_EQ(kinds(answers_to("proper-run-" + std::to_string(of))),
              "planned loaded connected stepped committed committed stepped committed stepped saved weights restored clock timeline ended")
        << of;
  }
}

TEST(SessionCorpus, AProperRunInWordsIsObeyedToItsEnd) {
  for (std::size_t of = 0; of < testing::session_cases().size(); ++of) {
    EXPECT_EQ(kinds(answers_to("proper-words-" + std::to_string(of))), "planned loaded connected stepped committed saved restored left")
        << of;
  }
}

TEST(SessionCorpus, HasNoSeedThatAFuzzerWouldCutShort) {
  for (const std::string& seed : list_folder(kCorpus)) {
    const auto bytes = read_file(kCorpus + seed, 1 << 16);
    ASSERT_TRUE(bytes) << seed;
    EXPECT_LE(bytes.value().size(), 4096U) << seed << ": the Makefile gives libFuzzer -max_len=4096";
  }
}

}  // namespace
}  // namespace epipe::train
