// Manual pages and shell completion follow the flags: whatever --help shows is in them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "support/program.h"
#include "support/temp_folder.h"

namespace epipe::cli {
namespace {

using testing::Outcome;
using testing::run_program;

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Outcome run_shell(const std::string& command) {
  FILE* const pipe = ::popen(("( " + command + " ) 2>&1").c_str(), "r");
  Outcome outcome;
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) outcome.output += static_cast<char>(c);
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

bool is_installed(const std::string& program) { return run_shell("command -v " + program).code == 0; }

struct Help {
  std::string path;  // "codec encode"; of the program itself: ""
  std::set<std::string> flags;
  std::vector<std::string> commands;
};

// What `epipe PATH --help` shows, by its layout: flags begin with two blanks and a hyphen, commands stand below "Subcommands:".
Help read_help(const std::string& path) {
  Help help{path, {}, {}};
  std::istringstream text(run_program(path + " --help").output);
  bool in_commands = false;
  for (std::string line; std::getline(text, line);) {
    if (line == "Subcommands:") in_commands = true;
    if (line.size() < 3 || line.compare(0, 2, "  ") != 0 || line[2] == ' ') continue;
    const std::string word = line.substr(2, line.find_first_of(" {", 2) - 2);
    if (in_commands) help.commands.push_back(word);
    std::istringstream names(word);
    for (std::string name; word.front() == '-' && std::getline(names, name, ',');) help.flags.insert(name);
  }
  return help;
}

void read_all_help(const std::string& path, std::vector<Help>& all) {
  all.push_back(read_help(path));
  const std::vector<std::string> commands = all.back().commands;
  for (const std::string& command : commands) read_all_help(path.empty() ? command : path + " " + command, all);
}

const std::vector<Help>& all_help() {
  static const std::vector<Help> all = [] {
    std::vector<Help> read;
    read_all_help("", read);
    return read;
  }();
  return all;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

class Manual : public ::testing::Test {
 protected:
  std::string page(const Help& help) const { return folder_.file("man/" + replaced("epipe " + help.path, " ", "-") + ".1"); }
  void write_pages() {
    const Outcome made = run_program("info --man " + folder_.file("man"));
    ASSERT_EQ(made.code, 0) << made.output;
    std::filesystem::rename(folder_.file("man/epipe.1"), page(all_help().front()));
  }
  // What the shell offers for the last word.
  std::vector<std::string> bash_offers(const std::vector<std::string>& words) {
    std::string line;
    for (const std::string& word : words) line += "'" + word + "' ";
    std::ofstream(folder_.file("try.bash")) << "source " << folder_.file("epipe.bash") << "\nCOMP_WORDS=(" << line << ")\n"
                                            << "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_epipe\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
    return lines_of(run_shell("cd " + folder_.path() + " && bash --norc -u try.bash").output);
  }
  std::vector<std::string> fish_offers(const std::string& line) {
    const std::string command = fmt::format("source {}; complete -C \"{}\"", folder_.file("epipe.fish"), line);
    auto offers = lines_of(run_shell("HOME=" + folder_.path() + " fish --no-config -c '" + command + "'").output);
    for (std::string& offer : offers) offer = offer.substr(0, offer.find('\t'));
    return offers;
  }
  // With stand-ins for what zsh offers words and files by, which need a terminal.
  std::vector<std::string> zsh_offers(const std::vector<std::string>& words) {
    std::string line;
    for (const std::string& word : words) line += "'" + word + "' ";
    std::ofstream(folder_.file("try.zsh"))
        << "compadd() { shift; print -l -- \"$@\" }; _files() { print FILES }; compset() { print \"compset $*\" }\n"
        << "compdef() { }; source " << folder_.file("epipe.zsh") << "\n"
        << "words=(" << line << ") CURRENT=" << words.size() << "; _epipe\n";
    return lines_of(run_shell("zsh -f -u " + folder_.file("try.zsh")).output);
  }
  void write_completion(const std::string& shell) {
    const Outcome made = run_program("info --completion " + shell);
    ASSERT_EQ(made.code, 0) << made.output;
    std::ofstream(folder_.file("epipe." + shell)) << made.output;
  }
  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
      if (!line.empty()) lines.push_back(line);
    }
    return lines;
  }

  testing::TempFolder folder_;
};

using Words = std::vector<std::string>;

TEST_F(Manual, HelpHasTheCommandsThisTestIsAbout) {
  std::set<std::string> paths;
  for (const Help& help : all_help()) paths.insert(help.path);
  for (const char* const path : {"", "train", "serve", "codec encode", "bench link"}) EXPECT_TRUE(paths.contains(path)) << path;
  EXPECT_FALSE(paths.contains("session")) << "hidden";
}

TEST_F(Manual, EveryCommandAndFlagHasItsPlaceOnAPage) {
  write_pages();
  for (const Help& help : all_help()) {
    const std::string text = content(page(help));
    ASSERT_FALSE(text.empty()) << page(help);
    for (const std::string& flag : help.flags) {
      EXPECT_NE(text.find("\\fB" + replaced(flag, "-", "\\-") + "\\fR"), std::string::npos) << help.path << " " << flag;
    }
    for (const std::string& command : help.commands) EXPECT_NE(text.find("\n\\fB" + command + "\\fR\n"), std::string::npos) << command;
  }
  EXPECT_EQ(static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_.file("man")), {})), all_help().size());
}

TEST_F(Manual, PagesSayTypeChoicesAndDefault) {
  write_pages();
  const std::string train = content(folder_.file("man/epipe-train.1"));
  EXPECT_NE(train.find("\\fB\\-\\-optimizer\\fR \\fBsgd|adam|adamw\\fR\n"), std::string::npos);
  EXPECT_NE(train.find("\\fB\\-\\-lr\\fR \\fIFLOAT\\fR\nLearning rate; a number of at least 0; default: 0.05.\n"), std::string::npos);
  EXPECT_NE(train.find("stand under [train]."), std::string::npos);
  const std::string encode = content(folder_.file("man/epipe-codec-encode.1"));
  EXPECT_NE(content(page(all_help().front())).find("\nepipe \\- trains neural networks"), std::string::npos) << "the name once";
  EXPECT_NE(encode.find("[\\fIOPTIONS\\fR] \\fIinput\\fR \\fIoutput\\fR\n"), std::string::npos) << encode;
}

TEST_F(Manual, PagesHaveNothingThatManOrMandocComplainsAbout) {
  write_pages();
  for (const Help& help : all_help()) {
    const std::string quoted = "'" + page(help) + "'";
    if (is_installed("mandoc")) {
      EXPECT_EQ(run_shell("mandoc -Tlint " + quoted).output, "");
    }
    if (is_installed("groff")) {
      EXPECT_EQ(run_shell("groff -man -ww -z " + quoted).output, "");
    }
  }
  if (!is_installed("mandoc") && !is_installed("groff")) GTEST_SKIP() << "neither mandoc nor groff is installed";
}

TEST_F(Manual, PagesAreTheSameBytesForTheSameDate) {
  for (const char* const name : {"a", "b"}) {
    ASSERT_EQ(run_shell(fmt::format("SOURCE_DATE_EPOCH=86400 $EPIPE_PROGRAM info --man {}", folder_.file(name))).code, 0);
  }
  const std::string text = content(folder_.file("a/epipe-serve.1"));
  EXPECT_NE(text.find(" 1 1970-01-02 "), std::string::npos);
  EXPECT_EQ(text, content(folder_.file("b/epipe-serve.1")));
}

TEST_F(Manual, SaysWhyItCannotBeWritten) {
  std::ofstream(folder_.file("taken")) << "a file";
  const Outcome outcome = run_program("info --man " + folder_.file("taken"));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.output.find("cannot "), std::string::npos) << outcome.output;
  EXPECT_EQ(run_program("info --completion tcsh").code, 2);
}

TEST_F(Manual, BashOffersEveryCommandAndFlag) {
  write_completion("bash");
  for (const Help& help : all_help()) {
    Words words = {"epipe"};
    std::istringstream path(help.path);
    for (std::string word; path >> word;) words.push_back(word);
    words.emplace_back();
    if (!help.commands.empty()) {
      EXPECT_EQ(bash_offers(words), help.commands) << help.path;
    }
    words.back() = "-";
    const auto offers = bash_offers(words);
    std::set<std::string> expected = help.flags;
    expected.insert("--config");
    EXPECT_EQ(std::set<std::string>(offers.begin(), offers.end()), expected) << help.path;
  }
}

TEST_F(Manual, BashOffersWhatAFlagTakes) {
  write_completion("bash");
  std::ofstream(folder_.file("run one.toml")) << "";
  EXPECT_EQ(bash_offers({"epipe", "train", "--optimizer", ""}), (Words{"sgd", "adam", "adamw"}));
  EXPECT_EQ(bash_offers({"epipe", "train", "--optimizer", "=", "adam"}), (Words{"adam", "adamw"}));
  EXPECT_EQ(bash_offers({"epipe", "train", "--optimizer", "="}), (Words{"sgd", "adam", "adamw"}));
  EXPECT_EQ(bash_offers({"epipe", "train", "--batch", ""}), Words{});
  EXPECT_EQ(bash_offers({"epipe", "train", "--config", "run"}), Words{"run one.toml"});
  EXPECT_EQ(bash_offers({"epipe", "report", "run"}), Words{"run one.toml"}) << "an argument";
  EXPECT_EQ(bash_offers({"epipe", "serve", "--name", "train", "--drain"}), Words{"--drain-time"}) << "a value is no command";
  EXPECT_EQ(bash_offers({"epipe", "launch", "-n", "2", "--", "train", "--lr-s"}), Words{"--lr-schedule"});
}

TEST_F(Manual, ZshOffersTheSame) {
  if (!is_installed("zsh")) GTEST_SKIP() << "zsh is not installed";
  write_completion("zsh");
  for (const Help& help : all_help()) {
    Words words = {"epipe"};
    std::istringstream path(help.path);
    for (std::string word; path >> word;) words.push_back(word);
    words.emplace_back();
    if (!help.commands.empty()) {
      EXPECT_EQ(zsh_offers(words), help.commands) << help.path;
    }
    words.back() = "-";
    const auto offers = zsh_offers(words);
    std::set<std::string> expected = help.flags;
    expected.insert("--config");
    EXPECT_EQ(std::set<std::string>(offers.begin(), offers.end()), expected) << help.path;
  }
  EXPECT_EQ(zsh_offers({"epipe", "train", "--optimizer", ""}), (Words{"sgd", "adam", "adamw"}));
  EXPECT_EQ(zsh_offers({"epipe", "train", "--optimizer=ad"}), (Words{"compset -P *=", "sgd", "adam", "adamw"}));
  EXPECT_EQ(zsh_offers({"epipe", "train", "--batch", ""}), Words{});
  EXPECT_EQ(zsh_offers({"epipe", "train", "--config", ""}), Words{"FILES"});
  EXPECT_EQ(zsh_offers({"epipe", "report", ""}), Words{"FILES"}) << "an argument";
  EXPECT_EQ(zsh_offers({"epipe", "launch", "-n", "2", "--", "codec", ""}), (Words{"encode", "decode", "measure"}));
}

TEST_F(Manual, FishOffersTheSame) {
  if (!is_installed("fish")) GTEST_SKIP() << "fish is not installed";
  write_completion("fish");
  EXPECT_EQ(fish_offers("epipe codec "), (Words{"decode", "encode", "measure"}));
  EXPECT_EQ(fish_offers("epipe train --optimizer "), (Words{"adam", "adamw", "sgd"}));
  EXPECT_EQ(fish_offers("epipe bench codec --qu"), Words{"--quick"}) << "not those of epipe codec";
  EXPECT_EQ(fish_offers("epipe launch -n 2 -- codec "), (Words{"decode", "encode", "measure"})) << "flags fish offers before -- alone";
  for (const Help& help : all_help()) {
    const auto offers = fish_offers("epipe " + help.path + (help.path.empty() ? "" : " ") + "--");
    const std::set<std::string> offered(offers.begin(), offers.end());
    for (const std::string& flag : help.flags) EXPECT_TRUE(flag[1] != '-' || offered.contains(flag)) << help.path << " " << flag;
  }
}

}  // namespace
}  // namespace epipe::cli
