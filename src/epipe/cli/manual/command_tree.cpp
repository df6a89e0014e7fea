#include "epipe/cli/manual/command_tree.h"

#include <algorithm>
#include <cctype>

namespace epipe::cli::manual {
namespace {

// "a,b" as its words.
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ',') words.emplace_back();
    if (c != ',') words.back() += c;
  }
  return words;
}

// --help shows checks like "ABOVE 0"; lower case reads better on a page.
void in_small_letters(std::string& text) {
  const auto is_small = [](char c) { return std::islower(static_cast<unsigned char>(c)) != 0; };
  if (std::any_of(text.begin(), text.end(), is_small)) return;
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

// CLI11 shows a type and its check in one word: "TEXT:{gloo,nccl}", "FLOAT:a number above 0".
void set_type(Flag& flag, const std::string& shown) {
  const std::size_t colon = shown.find(':');
  flag.type = shown.empty() ? "TEXT" : shown.substr(0, colon);
  if (colon == std::string::npos) return;
  flag.expected = shown.substr(colon + 1);
  const std::size_t close = flag.expected.find('}');
  if (flag.expected.front() != '{' || close == std::string::npos) return in_small_letters(flag.expected);
  flag.choices = split(flag.expected.substr(1, close - 1));
  flag.expected.clear();
}

Flag flag_of(const CLI::Option& option) {
  Flag flag;
  for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
  flag.is_argument = flag.names.empty();
  if (flag.is_argument) flag.names = {option.get_name(true, false)};
  if (option.get_items_expected_max() > 0) set_type(flag, option.get_type_name());
  flag.initial = option.get_default_str();
  flag.help = option.get_description();
  flag.section = option.get_group();
  flag.is_repeatable = option.get_items_expected_max() > 1;
  flag.is_required = option.get_required();
  return flag;
}

bool is_shown(const std::string& group) { return !group.empty(); }

std::string config_section_of(const std::string& path) {
  std::string section = path.substr(path.find(' ') + 1);
  for (char& c : section) c = c == ' ' ? '.' : c;
  return section;
}

Command tree_of(const CLI::App& app, const std::string& path, const Flag* config) {
  Command command{.path = path, .help = app.get_description(), .config_section = {}, .flags = {}, .commands = {}};
  for (const CLI::Option* const option : app.get_options()) {
    const bool is_config = option == app.get_config_ptr();
    if (is_shown(option->get_group())) command.flags.push_back(is_config ? *config : flag_of(*option));
  }
  for (const CLI::App* const below : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (is_shown(below->get_group())) command.commands.push_back(tree_of(*below, path + " " + below->get_name(), config));
  }
  if (config == nullptr || app.get_parent() == nullptr) return command;
  command.flags.push_back(*config);
  if (app.get_footer().find("--config") != std::string::npos) command.config_section = config_section_of(path);
  return command;
}

void append_all(const Command& command, std::vector<const Command*>& all) {
  all.push_back(&command);
  for (const Command& below : command.commands) append_all(below, all);
}

}  // namespace

Command command_tree(const CLI::App& program) {
  const CLI::Option* const option = program.get_config_ptr();
  if (option == nullptr) return tree_of(program, program.get_name(), nullptr);
  Flag config = flag_of(*option);
  config.type = "FILE";
  return tree_of(program, program.get_name(), &config);
}

std::vector<const Command*> all_commands(const Command& command) {
  std::vector<const Command*> all;
  append_all(command, all);
  return all;
}

}  // namespace epipe::cli::manual
