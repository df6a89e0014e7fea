#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

// A setting declared by a line of settings.def, bound to the value it sets. Independent of flags and sockets, whose code reads it.
namespace epipe::train {

// Who must agree on a setting.
enum class Scope : std::uint8_t {
  kAll,              // every process of a run, and a resumed run; it is sent in the plan
  kResolved,         // the same, as resolved in the plan: cuts as layer indices, codecs by cut, loss scaling on or off
  kClient,           // only the client uses it; it must be the same in a resumed run and on all ranks of a cluster
  kClientMayChange,  // the same, but it may change in a resumed run
  kProcess,          // nobody: it affects only this process
};

// Headings of --help.
inline constexpr std::string_view kDataSection = "Model and data";
inline constexpr std::string_view kStageSection = "Stages and codecs";
inline constexpr std::string_view kTrainingSection = "Training";
inline constexpr std::string_view kNetworkSection = "Processes";
inline constexpr std::string_view kRunSection = "Run directory";

// A codec for one cut and direction: "1:backward=sort:6+2".
struct CodecAt {
  std::size_t cut = 0;
  bool forward = true;
  std::string spec;
};
// Throws std::invalid_argument.
CodecAt parse_codec_at(const std::string& text);
std::string to_string(const CodecAt& at);

// What a value, or each entry of a list, must be.
struct Check {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool without_least = false;
  bool without_most = false;
  std::vector<std::string> choices{};
};
inline Check any() { return {}; }
inline Check at_least(double least) { return {.least = least}; }
inline Check above(double least) { return {.least = least, .without_least = true}; }
inline Check within(double least, double most) { return {.least = least, .most = most}; }
inline Check fraction() { return {.least = 0, .most = 1, .without_most = true}; }
inline Check one_of(std::vector<std::string> choices) { return {.choices = std::move(choices)}; }
template <typename... Choices>
Check one_of(Choices... choices) {
  return {.choices = {choices...}};
}

// A pointer to a value, never null.
using SettingValue = std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, std::string*, std::vector<int>*,
                                  std::vector<std::string>*, std::vector<CodecAt>*>;

struct Setting {
  std::string_view name;  // "lr_power"
  SettingValue value;
  bool turned_off = false;  // a bool that is true by default: the flag sets it to false
  Scope scope = Scope::kProcess;
  std::string_view section{};
  Check check{};
  std::string_view help{};

  std::string key() const;   // "lr-power", "no-shuffle": the flag without its dashes, and the key of config.toml
  std::string flag() const;  // "--lr-power", "--no-shuffle"
  std::string text() const;  // the value; list entries separated by commas
  // "1 to 4096"; empty: anything.
  std::string expected() const;
  // The error in the text of a value or entry: "expected a whole number, 1 to 4096, got x"; empty if it is valid.
  std::string complaint(const std::string& text) const;
};

// By member name: for settings_of() and other code that includes settings.def. The declared default determines `turned_off`.
template <typename T>
Setting make_setting(std::string_view name, T& value, const T& declared, Scope scope, std::string_view section, Check check,
                     std::string_view help) {
  bool turned_off = false;
  if constexpr (std::is_same_v<T, bool>) turned_off = declared;
  return {name, &value, turned_off, scope, section, std::move(check), help};
}

// The settings of these scopes as text, by name.
std::map<std::string, std::string> texts_of(const std::vector<Setting>& settings, std::initializer_list<Scope> scopes);
// The same as JSON values, for another process.
nlohmann::json to_json(const std::vector<Setting>& settings, std::initializer_list<Scope> scopes);
// Sets them from another process's JSON. For untrusted values: each must be present, of its type and within its bounds. Throws
// std::invalid_argument that names the field.
void set_from_json(const std::vector<Setting>& settings, std::initializer_list<Scope> scopes, const nlohmann::json& object);
// Lines "key = value" of a TOML table that the flags can read; omits empty texts and lists.
std::string to_toml(const std::vector<Setting>& settings);

// Bounds on data from another process: far above any model's needs, far below what would exhaust a machine.
inline constexpr std::size_t kMaxEntries = 1024;
inline constexpr std::size_t kMaxTextBytes = 4096;

}  // namespace epipe::train
