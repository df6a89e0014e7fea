#include "epipe/cli/setting_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

namespace epipe::cli {
namespace {

using train::CodecAt;
using train::Setting;

CLI::Option* add_flag(CLI::App& command, const Setting& setting, bool& value, const std::string& help) {
  return command.add_flag((setting.turned_off ? "!" : "") + setting.flag(), value, help);
}

template <typename T>
CLI::Option* add_flag(CLI::App& command, const Setting& setting, T& value, const std::string& help) {
  return command.add_option(setting.flag(), value, help)->capture_default_str();
}

template <typename T>
CLI::Option* add_flag(CLI::App& command, const Setting& setting, std::vector<T>& values, const std::string& help) {
  return command.add_option(setting.flag(), values, help)->delimiter(',')->capture_default_str();
}

// Given once for each cut and direction: a codec may have commas.
CLI::Option* add_flag(CLI::App& command, const Setting& setting, std::vector<CodecAt>& values, const std::string& help) {
  const auto parse = [&values, flag = setting.flag()](const std::vector<std::string>& texts) {
    values.clear();
    try {
      for (const std::string& text : texts) values.push_back(train::parse_codec_at(text));
    } catch (const std::invalid_argument& error) {
      throw CLI::ValidationError(flag, error.what());
    }
  };
  return command.add_option_function<std::vector<std::string>>(setting.flag(), parse, help);
}

// The check as CLI11 shows it in --help, after the type.
std::string shown_check(const Setting& setting) {
  if (setting.check.choices.empty()) return setting.expected();
  return fmt::format("{{{}}}", fmt::join(setting.check.choices, ","));
}

}  // namespace

CLI::Option* add_setting_flag(CLI::App& command, const Setting& setting, const std::string& more) {
  const std::string help = std::string(setting.help) + more;
  auto* const option = std::visit([&](auto* value) { return add_flag(command, setting, *value, help); }, setting.value);
  option->group(std::string(setting.section));
  if (setting.expected().empty()) return option;
  const auto check = [setting](const std::string& text) {
    const std::string complaint = setting.complaint(text);
    return complaint.empty() ? "" : fmt::format("{} ({})", complaint, setting.help);
  };
  return option->check(CLI::Validator([check](std::string& text) { return check(text); }, shown_check(setting)));
}

}  // namespace epipe::cli
