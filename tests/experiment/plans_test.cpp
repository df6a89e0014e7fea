// Every experiment's flags are flags that epipe train accepts, and its model, cuts, placement and codecs fit together.
#include <gtest/gtest.h>

#include <algorithm>

#include "epipe/cli/train_flags.h"
#include "epipe/codec/codec.h"
#include "epipe/experiment/arguments.h"
#include "epipe/model/costs.h"
#include "epipe/train/learned_codecs.h"
#include "epipe/train/plan.h"
#include "support/models.h"

namespace epipe::experiment {
namespace {

data::DataSpec spec_of(const Entry& entry) {
  const bool text = testing::takes_text(entry.model);
  data::DataSpec spec;
  spec.kind = text ? data::DataSpec::Kind::kText : data::DataSpec::Kind::kImages;
  spec.shape = text ? std::vector<std::int64_t>{128} : std::vector<std::int64_t>{3, 224, 224};
  spec.classes = entry.data == "images" ? 1000 : entry.data == "food101" ? 101 : entry.data == "cifar100" ? 100 : text ? 2 : 10;
  spec.vocabulary = text ? 50265 : 0;
  return spec;
}

// As epipe train understands the entry.
train::TrainConfig parsed(const Entry& entry) {
  cli::TrainFlags flags;
  CLI::App train;
  cli::add_train_flags(train, flags);
  std::vector<std::string> words;
  for (const auto& [name, value] : entry.flags) words.insert(words.begin(), {value, name});  // CLI11 wants the last one first
  train.parse(words);
  return cli::checked(flags);
}

train::Plan plan_of(const train::TrainConfig& config, const model::Architecture& model) {
  train::Plan plan;
  for (const std::string& cut : config.cuts) plan.cuts.push_back(model::resolve_cut(cut, model));
  while (config.cuts.empty() && plan.cuts.size() + 1 < config.place.size())
    plan.cuts.push_back(plan.cuts.size() + 1);  // balanced when it runs
  plan.place = config.place;
  plan.chunks = config.chunks;
  plan.codecs.assign(plan.cuts.size(), {config.codec_forward.empty() ? config.codec : config.codec_forward, config.codec});
  for (const auto& at : config.codec_at) (at.forward ? plan.codecs.at(at.cut).forward : plan.codecs.at(at.cut).backward) = at.spec;
  return plan;
}

TEST(Plans, OfAllExperimentsFitTheirModels) {
  const auto all = read_catalogue();
  ASSERT_TRUE(all) << all.error().message;
  for (const Entry& entry : all.value()) {
    if (entry.kind == Kind::kParameters) continue;
    SCOPED_TRACE(entry.id);
    const auto spec = spec_of(entry);
    model::Architecture model = testing::architecture_of(entry.model, spec);
    const train::TrainConfig config = parsed(entry);
    train::Plan plan = plan_of(config, model);
    plan.data = spec;
    ASSERT_EQ(plan.place.size(), plan.cuts.size() + 1);
    EXPECT_TRUE(std::is_sorted(plan.cuts.begin(), plan.cuts.end()));
    EXPECT_GE(config.batch, config.chunks);
    EXPECT_EQ(schedule::Placement{plan.place}.workers(), entry.workers);
    train::insert_learned_codecs(model, plan);
    for (const auto& codecs : plan.codecs) {
      EXPECT_TRUE(codec::make_codec(codecs.forward)) << codecs.forward;
      EXPECT_TRUE(codec::make_codec(codecs.backward)) << codecs.backward;
    }
    EXPECT_NO_THROW(train::pipeline_config(plan));
  }
}

}  // namespace
}  // namespace epipe::experiment
