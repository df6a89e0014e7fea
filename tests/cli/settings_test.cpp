// A line of settings.def is all that a setting takes: flag, help, config.toml, the message to other processes and the check of --resume.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "epipe/cli/setting_flags.h"
#include "epipe/cli/train_flags.h"
#include "epipe/train/plan.h"
#include "support/temp_folder.h"

namespace epipe::train {
namespace {

using nlohmann::json;

// A configuration with one more setting than epipe has.
struct Extended {
#define SECTION(heading)
#define SETTING(name, type, value, scope, check, help) type name = value;
#include "cli/one_more_setting.def"
#undef SECTION
#undef SETTING

  std::vector<Setting> settings() {
    std::vector<Setting> all;
    std::string_view section;
#define SECTION(heading) section = heading;
#define SETTING(name, type, value, scope, check, help) \
  all.push_back(make_setting<type>(#name, this->name, type{value}, Scope::scope, section, check, help));
#include "cli/one_more_setting.def"
#undef SECTION
#undef SETTING
    return all;
  }
};

// epipe train with the flags of these settings.
class SettingFlags {
 public:
  explicit SettingFlags(const std::vector<Setting>& settings) {
    app_.set_config("--config");
    app_.allow_config_extras(CLI::config_extras_mode::error);
    train_ = app_.add_subcommand("train");
    for (const Setting& setting : settings) cli::add_setting_flag(*train_, setting);
  }
  void parse(std::vector<std::string> words) {
    std::reverse(words.begin(), words.end());  // CLI11 takes the last word first
    app_.parse(words);
  }
  std::string help() const { return train_->help(); }

 private:
  CLI::App app_;
  CLI::App* train_ = nullptr;
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

template <typename Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const std::exception& refused) {
    return refused.what();
  }
  return "nothing was refused";
}

TEST(OneMoreSetting, IsAFlagWithItsHelpAndItsBounds) {
  Extended config;
  SettingFlags flags(config.settings());
  EXPECT_TRUE(contains(flags.help(), "--sparkle"));
  EXPECT_TRUE(contains(flags.help(), "Of the weights, in a test"));
  flags.parse({"train", "--sparkle", "0.75"});
  EXPECT_EQ(config.sparkle, 0.75);
  EXPECT_TRUE(contains(refusal([&] { flags.parse({"train", "--sparkle", "2"}); }), "--sparkle: expected a number from 0 to 1, got 2"));
}

TEST(OneMoreSetting, IsInTheConfigFileAndReadBack) {
  Extended written;
  written.sparkle = 0.25;
  const testing::TempFolder folder;
  std::ofstream(folder.file("config.toml")) << "[train]\n" << to_toml(written.settings());
  Extended config;
  SettingFlags flags(config.settings());
  flags.parse({"--config", folder.file("config.toml"), "train"});
  EXPECT_EQ(config.sparkle, 0.25);
}

TEST(OneMoreSetting, TravelsAndIsCompared) {
  Extended here;
  Extended there;
  there.sparkle = 0.75;
  const json sent = to_json(there.settings(), {Scope::kAll});
  EXPECT_EQ(differences(to_json(here.settings(), {Scope::kAll}), sent), "--sparkle: 0.5 here, 0.75 there");
  set_from_json(here.settings(), {Scope::kAll}, sent);
  EXPECT_EQ(here.sparkle, 0.75);
  const auto refused = [&](const json& value) {
    json damaged = sent;
    damaged["sparkle"] = value;
    return refusal([&] { set_from_json(here.settings(), {Scope::kAll}, damaged); });
  };
  EXPECT_TRUE(contains(refused(1.5), "sparkle is 1.5, expected a number from 0 to 1")) << refused(1.5);
  EXPECT_TRUE(contains(refused("much"), "sparkle has the wrong type")) << refused("much");
}

// Another value that the setting may have.
void change(const Setting& setting, bool*& value) { (void)setting, *value = !*value; }
void change(const Setting& setting, std::string*& value) { *value = setting.check.choices.empty() ? "x.y" : setting.check.choices.back(); }
void change(const Setting&, std::vector<int>*& value) { *value = {0, 1, 2}; }
void change(const Setting&, std::vector<std::string>*& value) { *value = {"1", "3"}; }
void change(const Setting&, std::vector<CodecAt>*& value) { *value = {{1, false, "conv:32x4,16>fp16"}, {0, true, "none"}}; }
template <typename Number>
void change(const Setting& setting, Number*& value) {
  const Number before = *value;
  for (const double other : {2.0, 3.0, 1.0, 0.5, 0.25}) {
    *value = static_cast<Number>(other);
    if (*value != before && setting.complaint(setting.text()).empty()) return;
  }
  ADD_FAILURE() << "no other value for " << setting.name;
}
void change(const Setting& setting) {
  const std::string before = setting.text();
  std::visit([&](auto* value) { change(setting, value); }, setting.value);
  EXPECT_NE(setting.text(), before) << setting.name;
  EXPECT_EQ(setting.check.choices.empty() || setting.complaint(setting.text()).empty(), true) << setting.name;
}

constexpr auto kScopes = {Scope::kAll, Scope::kResolved, Scope::kClient, Scope::kClientMayChange, Scope::kProcess};

TEST(Settings, SurviveTheConfigFile) {
  TrainConfig written;
  for (const Setting& setting : settings_of(written)) change(setting);
  const testing::TempFolder folder;
  std::ofstream(folder.file("config.toml")) << to_toml(written);
  TrainConfig config;
  SettingFlags flags(settings_of(config));
  flags.parse({"--config", folder.file("config.toml"), "train"});
  EXPECT_EQ(texts_of(config, kScopes), texts_of(written, kScopes));
}

Plan plan_of(const TrainConfig& config) {
  Plan plan;
  static_cast<SharedSettings&>(plan) = config;
  plan.data = {data::DataSpec::Kind::kImages, {3, 4, 4}, 3, 0};
  plan.cuts.resize(plan.place.size() - 1);
  plan.codecs.resize(plan.cuts.size());
  plan.client = texts_of(config, {Scope::kClient});
  return plan;
}

TEST(Settings, SharedOnesTravelInThePlan) {
  TrainConfig config;
  for (const Setting& setting : settings_of(config)) change(setting);
  const Plan read = plan_from_json(to_json(plan_of(config)));
  TrainConfig arrived;
  static_cast<SharedSettings&>(arrived) = read;
  EXPECT_EQ(texts_of(arrived, {Scope::kAll}), texts_of(config, {Scope::kAll}));
  json unknown = to_json(plan_of(config));
  unknown["sparkle"] = 0.5;
  EXPECT_TRUE(contains(refusal([&] { plan_from_json(unknown); }), "sparkle, which this version of epipe does not know"));
}

TEST(Settings, OfTheClientStayThere) {
  const json sent = to_json(plan_of(TrainConfig()));
  TrainConfig config;
  for (const Setting& setting : settings_of(config)) {
    const bool of_all = setting.scope == Scope::kAll;
    const bool resolved = setting.scope == Scope::kResolved || setting.name == "data" || setting.name == "seed";
    EXPECT_TRUE(resolved || sent.contains(std::string(setting.name)) == of_all) << setting.name;
  }
}

TEST(Settings, AResumedRunHasThemAgainUnlessTheyMayChange) {
  const std::string saved = checkpoint_fingerprint(plan_of(TrainConfig())).dump();
  TrainConfig defaults;
  const std::size_t count = settings_of(defaults).size();
  for (std::size_t k = 0; k < count; ++k) {
    TrainConfig config;
    const Setting setting = settings_of(config)[k];
    if (setting.scope == Scope::kResolved) continue;
    change(setting);
    const std::string refused = refusal([&] { require_same_run(plan_of(config), saved); });
    const bool must_agree = setting.scope == Scope::kAll || setting.scope == Scope::kClient;
    const std::string named = setting.turned_off ? fmt::format("({})", setting.flag()) : setting.flag();
    EXPECT_EQ(contains(refused, named + ": "), must_agree) << refused;
    EXPECT_EQ(refused == "nothing was refused", !must_agree) << refused;
    EXPECT_EQ(contains(refused, "a resumed run may change --loss-added, --harm, --audit-share, --epochs,"), must_agree) << refused;
  }
}

}  // namespace
}  // namespace epipe::train
