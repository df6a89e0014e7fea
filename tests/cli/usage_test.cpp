// The first ten minutes: what the program says to somebody who does not know it yet.
#include "epipe/cli/usage.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "epipe/data/npy.h"
#include "support/program.h"
#include "support/temp_folder.h"

namespace epipe::cli {
namespace {

using testing::Outcome;

class Usage : public ::testing::Test {
 protected:
  Outcome run(const std::string& arguments) const { return testing::run_program(arguments, folder_.path()); }
  void expect(const std::string& arguments, int code, const std::vector<std::string>& said) const {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << arguments << '\n' << outcome.output;
    for (const std::string& words : said) EXPECT_NE(outcome.output.find(words), std::string::npos) << words << '\n' << outcome.output;
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_.file(name)) << text; }

  testing::TempFolder folder_;
};

// A port of this machine that somebody listens on.
class TakenPort {
 public:
  TakenPort() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (::bind(fd_, any, size) != 0 || ::listen(fd_, 1) != 0 || ::getsockname(fd_, any, &size) != 0) throw std::runtime_error("no port");
    port_ = ntohs(address.sin_port);
  }
  ~TakenPort() { ::close(fd_); }
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;
  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

 private:
  int fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
  int port_ = 0;
};

TEST(Nearest, IsTheWordThatWasMeant) {
  const std::vector<std::string> flags = {"--epochs", "--lr", "--lr-power", "--checkpoint-every", "--batch"};
  EXPECT_EQ(nearest("--epoch", flags), "--epochs");
  EXPECT_EQ(nearest("--lrpower", flags), "--lr-power");
  EXPECT_EQ(nearest("--checkpoint", flags), "--checkpoint-every") << "the beginning of one";
  EXPECT_EQ(nearest("--batch-size", flags), "") << "no word is better than a wrong one";
  EXPECT_EQ(nearest("--frobnicate", flags), "");
}

TEST_F(Usage, AnUnknownFlagGetsASuggestionAndTheCommandsHelp) {
  expect("train --epoch 3 --run-dir a", 2, {"epipe: epipe train has no flag --epoch; did you mean --epochs?", "`epipe train --help`"});
  expect("train --epoch=3 --run-dir a", 2, {"--epoch; did you mean --epochs?"});
  expect("codec measure --codek none x.npy", 2, {"epipe codec measure has no flag --codek; did you mean --codec?"});
  expect("train --frobnicate 3 --run-dir a", 2, {"has no flag --frobnicate; `epipe train --help`"});
  expect("trian --run-dir a", 2, {"there is no command trian; did you mean train?"});
}

TEST_F(Usage, EveryCommandsHelpNamesTheConfigFile) {
  for (const std::string command : {"train", "eval", "serve", "launch", "forward", "codec encode", "codec measure", "bench codec", "info",
                                    "schedule", "report", "experiment list", "inspect"}) {
    expect(command + " --help", 0, {"--config FILE.toml"});
  }
}

TEST_F(Usage, AConfigFileServesEveryCommand) {
  write("c.toml", "[schedule]\nschedule = \"1f1b\"\nchunks = 3\n");
  const Outcome by_file = run("schedule --place 0,1,0 --config c.toml");
  EXPECT_EQ(by_file.code, 0) << by_file.output;
  EXPECT_EQ(by_file.output, run("schedule --place 0,1,0 --schedule 1f1b --chunks 3").output);
}

TEST_F(Usage, AConfigFileOfOtherCommandsAloneIsRefused) {
  write("train.toml", "[train]\nmodel = \"mlp\"\n");
  expect("eval --config train.toml", 2, {"expected flags of epipe eval under [eval], got [train] alone"});
  expect("codec measure --config train.toml x.npy", 2, {"under [codec.measure], got [train] alone"});
  write("both.toml", "[train]\nmodel = \"mlp\"\n[schedule]\nchunks = 2\n");
  EXPECT_EQ(run("schedule --place 0,1 --config both.toml").code, 0);
}

TEST_F(Usage, AMistakeInAConfigFileNamesFileAndLine) {
  write("key.toml", "# a run\n[train]\nmodel = \"mlp\"\nlrr = 0.1\n");
  expect("train --config key.toml --run-dir a", 2, {"key.toml, line 4: ", "train.lrr", "did you mean lr?"});
  write("value.toml", "[train]\nmodel = \"mlp\"\n\nlr = \"much\"\n");
  expect("train --config value.toml --run-dir a", 2, {"value.toml, line 4: --lr: expected a number of at least 0, got much"});
  expect("train --config value.toml --lr=-1 --run-dir a", 2, {"epipe: --lr: expected a number of at least 0, got -1"});
  write("line.toml", "[train]\nmodel = \"mlp\"\nwhatever\n");
  expect("train --config line.toml --run-dir a", 2, {"line.toml, line 3: "});
  expect("train --config missing.toml --run-dir a", 2, {"missing.toml"});
}

TEST_F(Usage, AWrongPlaceSaysWhatOneIs) {
  expect("train --place 0,x --run-dir a", 2,
         {"--place: expected a whole number from 0 to 1023, got x (Worker of each stage: 0,1,0 is the client/server ring"});
}

TEST_F(Usage, ATakenPortAndAMissingServerSayWhatToDo) {
  const TakenPort taken;
  expect("serve --insecure --listen " + taken.address(), 1, {"cannot listen on " + taken.address(), "choose another one"});
  expect("train --model mlp --insecure --connect 127.0.0.1:1 --reconnect 1 --run-dir a", 1,
         {"127.0.0.1:1: nobody answers at this address: start `epipe serve` there; trying for 1 s"});
}

TEST_F(Usage, SeveralCodecsAreMeasuredIntoOneTable) {
  torch::manual_seed(1);
  ASSERT_TRUE(data::write_npy(folder_.file("x.npy"), torch::randn({4, 64})).ok());
  const std::string measure = "codec measure --seconds 0.01 --codec uniform:8 --codec ec:2 x.npy";
  const Outcome table = run(measure);
  ASSERT_EQ(table.code, 0) << table.output;
  EXPECT_EQ(std::count(table.output.begin(), table.output.end(), '\n'), 3) << table.output;
  EXPECT_EQ(table.output.find("tensor "), 0U) << table.output;
  const Outcome lines = run(measure + " x.npy --json");
  ASSERT_EQ(lines.code, 0) << lines.output;
  std::istringstream text(lines.output);
  std::string codecs;
  for (std::string line; std::getline(text, line);) codecs += nlohmann::json::parse(line).at("codec").get<std::string>() + " ";
  EXPECT_EQ(codecs, "uniform:8 ec:2 uniform:8 ec:2 ");
  expect("codec measure --codec uniform:8 --codec nonsense x.npy", 2, {"--codec"});
}

TEST_F(Usage, AutoWithoutANumberIsForTraining) {
  ASSERT_TRUE(data::write_npy(folder_.file("x.npy"), torch::randn({4, 64})).ok());
  expect("codec encode --codec auto x.npy x.epf", 1, {"say bits per value here, as in auto:2"});
  expect("train --codec auto --run-dir a", 2, {"--codec auto codes what crosses a cut, but there is none"});
  expect("train --place 0,1 --codec auto --harm 0 --run-dir a", 2, {"--harm"});
  expect("train --place 0,1 --codec auto --loss-added 0 --run-dir a", 2, {"--loss-added"});
  expect("train --place 0,1 --codec auto --audit-share -1 --run-dir a", 2, {"--audit-share"});
  for (const std::string bound : {"--harm 0.2", "--loss-added 0.02", "--audit-share 0.1"}) {
    expect("train --place 0,1 --codec dct:1 " + bound + " --run-dir a", 2,
           {"are for codecs that choose their bits", "dct:1 does not", "say --codec auto"});
  }
  expect("plan --model cnn --workers a:cpu,b:cpu --loss-added 0.02", 2, {"--loss-added changes no plan"});
  expect("train --place 0,1 --codec 'topk:0.1>auto' --run-dir a", 2, {"expected ':' and bits per value"});
  expect("train --place 0,1 --codec sort:6+2 --audit --run-dir a", 2, {"--audit looks at codecs of a rate"});
}

TEST_F(Usage, InspectComparesAtEqualRatesAndKnowsAuto) {
  const Outcome outcome = run("inspect --model mlp --place 0,1 --batch 16 --steps 1 --run-dir a");
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  for (const char* const codec : {"auto:4", "auto:2", "auto:1", "dct:2", "ec:2"}) {
    EXPECT_NE(outcome.output.find(codec), std::string::npos) << codec;
  }
  std::istringstream text(outcome.output.substr(outcome.output.find("bits/value")));
  std::string line;
  std::getline(text, line);
  double last = 1e9;
  std::size_t best = 0;
  for (std::string cut, direction, codec; text >> cut >> direction >> codec && cut == "0" && direction == "forward";) {
    double bits = 0;
    text >> bits;
    EXPECT_LE(bits, last) << codec;
    last = bits;
    std::getline(text, line);
    best += line.ends_with("*") ? 1 : 0;
  }
  EXPECT_GE(best, 2U) << outcome.output;
}

TEST_F(Usage, TerminalAndReportAgreeOnSpeedAndTheLastLineIsTheEpochs) {
  const Outcome outcome = run("train --model mlp --batch 96 --place 0,1 --run-dir a 2>&1");
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  std::ifstream file(folder_.file("a/metrics.jsonl"));
  nlohmann::json epoch;
  double samples = 0;
  double seconds = 0;
  for (std::string line; std::getline(file, line);) {
    const auto parsed = nlohmann::json::parse(line);
    if (parsed.at("kind") == "epoch") epoch = parsed;
    if (parsed.at("kind") != "step") continue;
    samples += parsed.at("samples").get<double>();
    seconds += parsed.at("seconds").get<double>();
  }
  EXPECT_NE(outcome.output.find(fmt::format("{:.0f} samples/s\nresults in", samples / seconds)), std::string::npos) << outcome.output;
  EXPECT_NEAR(epoch.at("samples_per_s").get<double>(), samples / seconds, 1e-6 * samples / seconds);
  const auto last_line = outcome.output.rfind("epoch 0 step ");
  ASSERT_NE(last_line, std::string::npos) << outcome.output;
  const std::string progress = outcome.output.substr(last_line, outcome.output.find('\n', last_line) - last_line);
  const auto mean = fmt::format("loss {:.4f}  accuracy {:.3f}", epoch.at("loss").get<double>(), epoch.at("accuracy").get<double>());
  EXPECT_NE(progress.find(mean), std::string::npos) << progress << " instead of " << mean;
}

}  // namespace
}  // namespace epipe::cli
