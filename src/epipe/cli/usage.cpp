#include "epipe/cli/usage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <optional>

#include "epipe/cli/command.h"

namespace epipe::cli {
namespace {

// Levenshtein distance: insertions, deletions and replacements that turn one into the other.
std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

// The innermost chosen command: for `epipe codec encode`, encode.
const CLI::App& chosen(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : chosen(*parsed.front());
}

// "epipe codec encode"
std::string full_name(const CLI::App& command) {
  const CLI::App* const parent = command.get_parent();
  return parent == nullptr ? command.get_name() : full_name(*parent) + " " + command.get_name();
}

// "codec.encode", the section of a config file.
std::string section_of(const CLI::App& command) {
  const CLI::App* const parent = command.get_parent();
  if (parent == nullptr) return "";
  const std::string above = section_of(*parent);
  return above.empty() ? command.get_name() : above + "." + command.get_name();
}

std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> flags;
  for (const CLI::Option* const option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string meant = nearest(word, candidates);
  return meant.empty() ? "" : fmt::format("; did you mean {}?", meant);
}

bool is_flag(const std::string& word) { return word.size() > 2 && word.starts_with("--"); }

std::string name_of(const std::string& flag) { return flag.substr(0, flag.find('=')); }

// The first unrecognized flag that no command has.
std::optional<std::string> unknown_flag(const CLI::App& app) {
  const auto words = app.remaining(true);
  const auto found = std::find_if(words.begin(), words.end(), is_flag);
  return found == words.end() ? std::nullopt : std::optional(name_of(*found));
}

// "lr" of "--lr: expected a number" and of "Could not convert: --lr = much"; "train.lrr" of CLI11's complaint about a key.
std::string key_in(const std::string& message) {
  constexpr std::string_view kUnknownKey = "INI was not able to parse ";
  if (message.starts_with(kUnknownKey)) return message.substr(kUnknownKey.size());
  const std::size_t flag = message.find("--");
  if (flag == std::string::npos) return "";
  const std::size_t end = message.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-", flag);
  return message.substr(flag + 2, end == std::string::npos ? end : end - flag - 2);
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\"");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r\"") - first + 1);
}

// The line that sets the key in this section; 0 if none does.
std::size_t line_of(const std::string& file, const std::string& section, const std::string& key) {
  std::ifstream input(file);
  std::string current;
  std::size_t number = 0;
  for (std::string line; std::getline(input, line);) {
    ++number;
    const std::string text = trimmed(line);
    if (text.starts_with('[') && text.ends_with(']')) {
      current = text.substr(1, text.size() - 2);
    } else if (current == section && trimmed(text.substr(0, text.find('='))) == key) {
      return number;
    }
  }
  return 0;
}

struct Key {
  std::string section;
  std::string name;
};

Key key_of(const std::string& section, const CLI::ParseError& error) {
  const std::string key = key_in(error.what());
  const std::size_t dot = key.rfind('.');
  const bool of_file = dynamic_cast<const CLI::ConfigError*>(&error) != nullptr;
  if (!of_file) return {section, key};
  return dot == std::string::npos ? Key{"", key} : Key{key.substr(0, dot), key.substr(dot + 1)};
}

// The subcommand of a config file's section; null if there is none.
const CLI::App* command_of(const CLI::App& app, const std::string& section) {
  const auto all = app.get_subcommands([](const CLI::App*) { return true; });
  const auto found = std::find_if(all.begin(), all.end(), [&](const CLI::App* command) {
    return section == section_of(*command) || section.starts_with(section_of(*command) + ".");
  });
  if (found == all.end()) return nullptr;
  return section == section_of(**found) ? *found : command_of(**found, section);
}

std::string config_explanation(const CLI::App& app, const std::string& file, const CLI::ConfigError& error) {
  const Key key = key_of("", error);
  const CLI::App* const command = command_of(app, key.section);
  std::string meant = command == nullptr ? "" : nearest("--" + key.name, flags_of(*command));
  meant = meant.empty() ? "" : fmt::format("; did you mean {}?", meant.substr(2));
  return fmt::format("--config: {}{}{}; expected flags under the name of their command, such as [train] and lr = 0.1",
                     place_in_file(file, "", error), error.what(), meant);
}

// Whether the command line sets the flag itself, so that no file does.
bool is_given(const std::vector<std::string>& words, const std::string& flag) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) { return name_of(word) == flag; });
}

// "[train], [serve]", as the file has them.
std::string sections_in(const std::vector<CLI::ConfigItem>& items) {
  std::vector<std::string> sections;
  for (const CLI::ConfigItem& item : items) {
    const std::string section = fmt::format("[{}]", fmt::join(item.parents, "."));
    if (std::find(sections.begin(), sections.end(), section) == sections.end()) sections.push_back(section);
  }
  return fmt::format("{}", fmt::join(sections, ", "));
}

// Sections of other commands are passed over; a file that has nothing else would be, too, without a word.
class ConfigOfCommand final : public CLI::ConfigTOML {
 public:
  explicit ConfigOfCommand(const CLI::App& app) : app_(app) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    auto found = CLI::ConfigTOML::from_config(input);
    const std::string own = section_of(chosen(app_));
    const auto is_own = [&](const CLI::ConfigItem& item) {
      const std::string section = fmt::format("{}", fmt::join(item.parents, "."));
      return section.empty() || section == own || own.starts_with(section + ".");  // what is outside of sections is refused later
    };
    if (found.empty() || std::any_of(found.begin(), found.end(), is_own)) return found;
    throw UsageError(fmt::format("--config: expected flags of {} under [{}], got {} alone; put them there, or on the command line",
                                 full_name(chosen(app_)), own, sections_in(found)));
  }

 private:
  const CLI::App& app_;
};

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t least = std::max<std::size_t>(2, word.size() / 4) + 1;
  for (const std::string& candidate : candidates) {
    const bool begins = word.size() > 4 && candidate.starts_with(word);
    const std::size_t distance = begins ? 1 : edit_distance(word, candidate);
    if (distance >= least) continue;
    least = distance;
    best = candidate;
  }
  return best;
}

void share_config(CLI::App& app) {
  if (app.get_parent() == nullptr) app.config_formatter(std::make_shared<ConfigOfCommand>(app));
  for (CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; })) {
    command->fallthrough();
    if (command->get_require_subcommand_min() == 0) {  // it runs by itself
      command->footer(fmt::format("--config FILE.toml     Flags from a file, under [{}]; flags given on the command line override it",
                                  section_of(*command)));
    }
    share_config(*command);
  }
}

std::string place_in_file(const std::string& file, const std::string& section, const CLI::ParseError& error) {
  const Key key = key_of(section, error);
  const std::size_t line = line_of(file, key.section, key.name);
  return line == 0 ? file + ": " : fmt::format("{}, line {}: ", file, line);
}

std::string explanation(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words) {
  const auto* const option = app.get_config_ptr();
  const std::string file = option != nullptr && option->count() > 0 ? option->as<std::string>() : "";
  if (const auto* const config = dynamic_cast<const CLI::ConfigError*>(&error)) return config_explanation(app, file, *config);
  const CLI::App& command = chosen(app);
  const std::string help = fmt::format("`{} --help` lists what is possible", full_name(command));
  if (const auto flag = unknown_flag(app)) {
    return fmt::format("{} has no flag {}{}; {}", full_name(command), *flag, did_you_mean(*flag, flags_of(command)), help);
  }
  const std::string key = key_in(error.what());
  const bool from_file = !file.empty() && !key.empty() && !is_given(words, "--" + key);
  const std::string place = from_file ? place_in_file(file, section_of(command), error) : "";
  return fmt::format("{}{}; {}", place, error.what(), help);
}

}  // namespace epipe::cli
