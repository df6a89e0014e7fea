// Tokens of a server that several people share.
#include "epipe/serve/token_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <regex>

#include "epipe/base/sha256.h"
#include "serve/split.h"

namespace epipe::serve {
namespace {

using testing::Arguments;
using testing::file_bytes;
using testing::kRun;
using testing::run_program;
using testing::Split;
using testing::TempFolder;
using testing::operator+;

const std::string kHash = sha256_hex("first");
const std::string kOther = sha256_hex("second");

void write_tokens(const std::string& path, const std::string& text, mode_t mode = 0600) {
  std::ofstream(path, std::ios::trunc) << text;
  ::chmod(path.c_str(), mode);
}

TEST(TokenFile, HasNamesHashesAndLimits) {
  const auto read =
      parse_token_file("# people\n\nann " + kHash +
                       " sessions=2 memory=1.5 gb-per-day=20 seconds-per-day=3600.5 weight=4 # until May\nbob.b\t" + kOther + "\r\n");
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read.value().size(), 2U);
  EXPECT_EQ(read.value()[0].sessions, 2);
  EXPECT_EQ(read.value()[0].memory_bytes, 1'500'000'000U);
  EXPECT_EQ(read.value()[0].bytes_per_day, 20'000'000'000U);
  EXPECT_EQ(read.value()[0].seconds_per_day, 3600.5);
  EXPECT_EQ(read.value()[0].weight, 4);
  EXPECT_EQ(read.value()[1].name, "bob.b");
  EXPECT_EQ(read.value()[1].bytes_per_day, 0U);
  EXPECT_FALSE(read.value()[1].sessions);
  EXPECT_EQ(kHash, "a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e") << "as sha256sum prints it";
}

TEST(TokenFile, WithAWrongLineIsRefusedByItsNumber) {
  const std::string good = "ann " + kHash + "\n";
  const std::vector<std::string> wrong = {good + "ann " + kOther,
                                          good + "bob " + kHash,
                                          good + "bob " + kOther + "," + kOther,
                                          good + "bob",
                                          good + "bob " + kOther.substr(1),
                                          good + "bob " + kOther + ",",
                                          good + "Bob " + kOther,
                                          good + "b\x1b[1mb " + kOther,
                                          good + std::string(33, 'b') + " " + kOther,
                                          good + "bob " + kOther + " session=2",
                                          good + "bob " + kOther + " sessions=0",
                                          good + "bob " + kOther + " sessions=2 sessions=3",
                                          good + "bob " + kOther + " sessions=99999999999",
                                          good + "bob " + kOther + " memory=nan",
                                          good + "bob " + kOther + " memory=-1",
                                          good + "bob " + kOther + " memory=1e300",
                                          good + "bob " + kOther + " memory=1 memory=2",
                                          good + "bob " + kOther + " gb-per-day=0",
                                          good + "bob " + kOther + " gb-per-day=1 gb-per-day=1",
                                          good + "bob " + kOther + " seconds-per-day=inf",
                                          good + "bob " + kOther + " seconds-per-day=",
                                          good + "bob " + kOther + " weight=65",
                                          good + "bob " + kOther + " weight=0.5",
                                          good + "bob " + kOther + " fast"};
  for (const auto& text : wrong) {
    const auto read = parse_token_file(text);
    ASSERT_FALSE(read) << text;
    EXPECT_TRUE(read.error().message.starts_with("line 2: ")) << read.error().message;
    EXPECT_EQ(read.error().message.find(kOther), std::string::npos) << "no hash is quoted";
  }
  EXPECT_FALSE(parse_token_file("# nobody\n"));
}

TEST(TokenFile, ThatOthersCanReadOrThatIsNoneIsSaidAtTheStart) {
  Split split(1);
  const std::string serve = "serve --listen 127.0.0.1:0 --tls " + split.file("tls") + " --state-dir " + split.file("s") + " --tokens ";
  write_tokens(split.file("open"), "ann " + kHash + "\n", 0644);
  write_tokens(split.file("twice"), "ann " + kHash + "\nann " + kOther + "\n");
  write_tokens(split.file("little"), "ann " + kHash + " memory=0.01\n");
  const std::map<std::string, std::string> reasons = {{"open", "chmod 600"},
                                                      {"twice", "line 2"},
                                                      {"absent", "cannot read"},
                                                      {"tls", "is not a regular file"},
                                                      {"little", "memory= in --tokens"}};
  for (const auto& [name, reason] : reasons) {
    const auto refused = run_program(serve + split.file(name));
    EXPECT_EQ(refused.code, 2) << refused.output;
    EXPECT_NE(refused.output.find(reason), std::string::npos) << refused.output;
  }
}

TEST(TokenFile, GetsANewTokenOfWhichItKeepsTheHashAlone) {
  const TempFolder folder;
  const std::string add = "serve --tokens " + folder.file("tokens") + " --add-token ";
  const auto added = run_program(add + "ann");
  ASSERT_EQ(added.code, 0) << added.output;
  std::smatch found;
  ASSERT_TRUE(std::regex_search(added.output, found, std::regex("[0-9a-f]{64}"))) << added.output;
  const std::string token = found.str();
  EXPECT_EQ(file_bytes(folder.file("tokens")), "ann " + sha256_hex(token) + "\n");
  struct stat status {};
  ASSERT_EQ(::stat(folder.file("tokens").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  EXPECT_EQ(run_program(add + "ann").code, 2) << "the name is there already";
  EXPECT_EQ(run_program(add + "'a b'").code, 2);
  EXPECT_EQ(run_program("serve --add-token ann").code, 2);
  EXPECT_EQ(read_token_file(folder.file("tokens")).value().size(), 1U);
}

// A server with --tokens, and clients by the tokens they show.
class SharedServer : public ::testing::Test {
 protected:
  SharedServer() {
    write_tokens(split_.file("tokens"), "ann " + kHash + " sessions=1\nbob " + kOther + "\n");
    split_.start_server(0, {"--max-sessions", "8", "--tokens", split_.file("tokens")});
  }
  Arguments by(const std::string& token, const std::string& name) {
    write_tokens(split_.file(name + ".token"), token + "\n");
    return {"train",
            "--connect",
            split_.address(0),
            "--ca",
            split_.file("tls/ca.pem"),
            "--token-file",
            split_.file(name + ".token"),
            "--run-dir",
            split_.file(name),
            "--reconnect",
            "3",
            "--schedule",
            "gpipe"};
  }
  testing::Outcome try_with(const std::string& token, const std::string& name) {
    std::string line;
    for (const auto& word : by(token, name) + Arguments{"--max-steps", "1", "--batch", "8"}) line += word + " ";
    return run_program(line);
  }
  Split split_{1};
};

TEST_F(SharedServer, TakesNamedTokensBesideItsOwnAndNoOthers) {
  std::string own = file_bytes(split_.file("tls/token"));
  own.pop_back();
  for (const std::string& token : {std::string("first"), std::string("second"), own}) {
    const auto outcome = try_with(token, "good-" + token.substr(0, 8));
    EXPECT_EQ(outcome.code, 0) << outcome.output;
  }
  for (const std::string& token : {kHash, std::string("firs"), std::string("first first"), std::string(4000, 'x')}) {
    const auto outcome = try_with(token, "bad-" + token.substr(0, 4) + std::to_string(token.size()));
    EXPECT_EQ(outcome.code, 1) << outcome.output;
    EXPECT_NE(outcome.output.find("token"), std::string::npos) << outcome.output;
  }
  const std::string log = split_.server(0).log();
  EXPECT_NE(log.find(" for ann@ipv4:"), std::string::npos) << log;
}

TEST_F(SharedServer, HoldsANameToItsSessionsAndNobodyElse) {
  testing::Process first(by("first", "one") + kRun + Arguments{"--max-steps", "100000"}, split_.file("one.log"));
  ASSERT_TRUE(first.says("step", 60)) << first.log();
  const auto second = try_with("first", "two");
  EXPECT_EQ(second.code, 1);
  EXPECT_NE(second.output.find("your credential already has 1 sessions"), std::string::npos) << second.output;
  EXPECT_EQ(try_with("second", "three").code, 0);
  EXPECT_TRUE(first.running());
}

TEST_F(SharedServer, ReadsTheFileAgainOnHangupAndKeepsTheOldOneWhereItIsWrong) {
  write_tokens(split_.file("tokens"), "ann " + kHash + "\nann " + kOther + "\n");
  split_.server(0).signal(SIGHUP);
  ASSERT_TRUE(split_.server(0).says("not renewed, certificate and tokens are as they were: --tokens: ", 15)) << split_.server(0).log();
  EXPECT_EQ(try_with("second", "as-before").code, 0);
  write_tokens(split_.file("tokens"), "ann " + sha256_hex("third") + "," + kHash + "\n");  // for a while both are valid; bob is gone
  split_.server(0).signal(SIGHUP);
  ASSERT_TRUE(split_.server(0).says("renewed: ", 15)) << split_.server(0).log();
  EXPECT_EQ(try_with("third", "new").code, 0);
  EXPECT_EQ(try_with("first", "old").code, 0);
  EXPECT_EQ(try_with("second", "gone").code, 1);
}

TEST_F(SharedServer, HoldsANameToItsDayOverARestart) {
  write_tokens(split_.file("tokens"), "ann " + kHash + " gb-per-day=0.00002\nbob " + kOther + "\n");
  split_.server(0).signal(SIGHUP);
  ASSERT_TRUE(split_.server(0).says("renewed: ", 15)) << split_.server(0).log();
  testing::Process first(by("first", "one") + kRun + Arguments{"--max-steps", "100000"}, split_.file("one.log"));
  EXPECT_EQ(first.wait(90), 0) << first.log();
  EXPECT_NE(first.log().find("everything is saved"), std::string::npos) << first.log();
  EXPECT_TRUE(split_.server(0).says("is asked to save and leave: ann has sent and received its 2e-05 GB of today", 1))
      << split_.server(0).log();
  split_.server(0).signal(SIGTERM);
  ASSERT_EQ(split_.server(0).wait(30), 0);
  split_.start_server(0, {"--max-sessions", "8", "--tokens", split_.file("tokens")});
  const auto refused = try_with("first", "two");
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.output.find("sessions can go on from 20"), std::string::npos) << refused.output;
  EXPECT_EQ(try_with("second", "three").code, 0) << "it is ann's day that is over";
}

TEST_F(SharedServer, HoldsANameToItsDeviceSeconds) {
  write_tokens(split_.file("tokens"), "ann " + kHash + " seconds-per-day=5\n");
  split_.server(0).signal(SIGHUP);
  ASSERT_TRUE(split_.server(0).says("renewed: ", 15)) << split_.server(0).log();
  testing::Process first(by("first", "one") + kRun + Arguments{"--max-steps", "100000"}, split_.file("one.log"));
  EXPECT_EQ(first.wait(90), 0) << first.log();
  EXPECT_NE(first.log().find("everything is saved"), std::string::npos) << first.log();
  EXPECT_NE(try_with("first", "two").output.find("its 5 device seconds of today"), std::string::npos);
}

// The nice level of the first session that the log knows.
int nice_of_session(const std::string& log, int more) {
  std::smatch found;
  if (!std::regex_search(log, found, std::regex(" in process ([0-9]+)"))) return more;
  return ::getpriority(PRIO_PROCESS, static_cast<id_t>(std::stoi(found[1])));
}

TEST_F(SharedServer, GivesSessionsTheCpuByTheirWeights) {
  write_tokens(split_.file("tokens"), "ann " + kHash + " weight=1\nbob " + kOther + " weight=4\n");
  split_.server(0).signal(SIGHUP);
  ASSERT_TRUE(split_.server(0).says("renewed: ", 15)) << split_.server(0).log();
  testing::Process client(by("first", "one") + kRun + Arguments{"--max-steps", "100000"}, split_.file("one.log"));
  ASSERT_TRUE(client.says("step", 60)) << client.log();
  const int own = ::getpriority(PRIO_PROCESS, static_cast<id_t>(split_.server(0).pid()));
  EXPECT_EQ(nice_of_session(split_.server(0).log(), -1), std::min(19, own + 6)) << "1.25 to the 6th is about 4";
}

}  // namespace
}  // namespace epipe::serve
