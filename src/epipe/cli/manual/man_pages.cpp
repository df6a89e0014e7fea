#include "epipe/cli/manual/man_pages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "epipe/cli/command.h"

namespace epipe::cli::manual {
namespace {

constexpr std::size_t kLineLength = 78;

std::string replaced(const std::string& text, char from, const std::string& to) {
  std::string result;
  for (const char c : text) result += c == from ? to : std::string(1, c);
  return result;
}

// Flags get ASCII hyphens, so that they can be copied from the page; words get typographic ones.
std::string escaped_word(const std::string& word) {
  const std::string plain = replaced(word, '\\', "\\e");
  const std::size_t begin = plain.find_first_not_of("(\"'`[");
  const bool is_flag = begin != std::string::npos && plain[begin] == '-';
  return is_flag ? replaced(plain, '-', "\\-") : plain;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::size_t at = 0;
  while ((at = text.find_first_not_of(" \n", at)) != std::string::npos) {
    const std::size_t end = std::min(text.find_first_of(" \n", at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

// Lines of text, the first after `begin`, which is already roff; no line begins with a roff request.
std::string paragraph(const std::string& text, const std::string& begin = "") {
  std::string result;
  std::string line = begin;
  const auto flush = [&] {
    if (!line.empty()) result += (line.front() == '.' || line.front() == '\'' ? "\\&" : "") + line + "\n";
    line.clear();
  };
  for (const std::string& word : words_of(text)) {
    const std::string escaped = escaped_word(word);
    if (line.size() + 1 + escaped.size() > kLineLength) flush();
    line += (line.empty() ? "" : " ") + escaped;
  }
  flush();
  return result;
}

std::string sentence(const std::string& text) { return text.ends_with('.') ? text : text + "."; }

std::string bold(const std::string& text) { return "\\fB" + replaced(replaced(text, '\\', "\\e"), '-', "\\-") + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + replaced(text, '-', "\\-") + "\\fR"; }

// The value after the flag: the choices, or the type.
std::string value_of(const Flag& flag) {
  if (flag.type.empty()) return "";
  const std::string value = flag.choices.empty() ? italic(flag.type) : bold(fmt::format("{}", fmt::join(flag.choices, "|")));
  return " " + value + (flag.is_repeatable ? " ..." : "");
}

std::string heading_of(const Flag& flag) {
  if (flag.is_argument) return italic(flag.names.front()) + (flag.is_repeatable ? " ..." : "");
  std::vector<std::string> names;
  for (const std::string& name : flag.names) names.push_back(bold(name));
  return fmt::format("{}", fmt::join(names, ", ")) + value_of(flag);
}

std::string flag_text(const Flag& flag) {
  std::string text = flag.help;
  if (!flag.expected.empty()) text += "; " + flag.expected;
  if (!flag.initial.empty()) text += "; default: " + flag.initial;
  return fmt::format(".TP\n{}\n{}", heading_of(flag), paragraph(sentence(text)));
}

std::string flags_text(const Command& command) {
  std::string arguments, options;
  std::string section = "Options";
  for (const Flag& flag : command.flags) {
    if (flag.is_argument) {
      arguments += flag_text(flag);
      continue;
    }
    // --help and --config are in CLI11's own section, before and after the others.
    if (flag.section != section && flag.section != "Options") options += fmt::format(".SS {}\n", flag.section);
    if (flag.section != section && flag.section == "Options") options += ".SS Config file\n";
    section = flag.section;
    options += flag_text(flag);
  }
  return (arguments.empty() ? "" : ".SH ARGUMENTS\n" + arguments) + ".SH OPTIONS\n" + options;
}

std::string page_name(const Command& command) { return replaced(command.path, ' ', "-"); }

std::string synopsis(const Command& command) {
  std::string text = bold(command.path) + " [" + italic("OPTIONS") + "]";
  for (const Flag& flag : command.flags) {
    if (flag.is_argument) text += " " + heading_of(flag);
  }
  if (!command.commands.empty()) text += " " + italic("COMMAND") + " ...";
  return text + "\n";
}

std::string commands_text(const Command& command) {
  if (command.commands.empty()) return "";
  std::string text = ".SH COMMANDS\n";
  for (const Command& below : command.commands) {
    text += fmt::format(".TP\n{}\n{}", bold(below.name()), paragraph(sentence(below.help)));
    text += fmt::format("See\n.BR {} (1).\n", replaced(page_name(below), '-', "\\-"));
  }
  return text;
}

std::string config_text(const Command& command) {
  if (command.config_section.empty()) return "";
  return ".SH FILES\n" + paragraph(fmt::format("The file of --config is in TOML: flags of this command, without their hyphens in front, "
                                               "stand under [{}]. A run leaves its own as config.toml in its folder.",
                                               command.config_section));
}

std::string see_also(const Command& command) {
  const std::size_t above = command.path.rfind(' ');
  const std::string name =
      above == std::string::npos ? "epipe\\-train" : replaced(replaced(command.path.substr(0, above), ' ', "-"), '-', "\\-");
  return fmt::format(".SH SEE ALSO\n.BR {} (1)\n", name);
}

// For the line "epipe - trains ...", which already begins with the name.
std::string summary_of(const Command& command) {
  std::string summary = command.help.starts_with(command.path + " ") ? command.help.substr(command.path.size() + 1) : command.help;
  while (summary.ends_with('.')) summary.pop_back();
  return summary;
}

std::string today() {
  const char* const epoch = std::getenv("SOURCE_DATE_EPOCH");
  const std::time_t time =
      epoch != nullptr && *epoch != '\0' ? static_cast<std::time_t>(std::strtoll(epoch, nullptr, 10)) : std::time(nullptr);
  std::tm day{};
  gmtime_r(&time, &day);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", &day);
  return text;
}

}  // namespace

ManPage man_page(const Command& command, const std::string& version, const std::string& date) {
  std::string title = page_name(command);
  for (char& c : title) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const std::string summary = summary_of(command);
  std::string text =
      fmt::format(".\\\" Made by epipe info --man from the program's own flags.\n.TH {} 1 {} \"epipe {}\" \"User Commands\"\n",
                  replaced(title, '-', "\\-"), date, version);
  text += ".SH NAME\n" + paragraph(summary, replaced(page_name(command), '-', "\\-") + " \\-");
  text += ".SH SYNOPSIS\n" + synopsis(command);
  text += ".SH DESCRIPTION\n" + paragraph(sentence(command.help));
  text += commands_text(command) + flags_text(command) + config_text(command);
  text += ".SH EXIT STATUS\n" + paragraph("0: done. 1: it failed, and stderr says why. 2: the command line or the config file is wrong.");
  return {page_name(command) + ".1", text + see_also(command)};
}

void write_man_pages(const Command& program, const std::string& version, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Failure(fmt::format("cannot make {}: {}", folder, error.message()));
  for (const Command* const command : all_commands(program)) {
    const ManPage page = man_page(*command, version, today());
    const std::string path = folder + "/" + page.name;
    std::ofstream file(path);
    file << page.text << std::flush;
    if (!file) throw Failure(fmt::format("cannot write {}", path));
  }
}

}  // namespace epipe::cli::manual
