// Every byte that leaves the client of a run is looked at: neither inputs nor labels are among them, nor its seed, paths and settings.
#include <array>
#include <numeric>

#include "epipe/data/dataset.h"
#include "epipe/data/loader.h"
#include "epipe/model/safetensors.h"
#include "epipe/session/messages.h"
#include "epipe/train/plan.h"
#include "support/models.h"
#include "train/coordinated.h"

namespace epipe::train {
namespace {

using testing::Countdown;
using testing::Machines;
using testing::TempFolder;
using testing::Watcher;

bool appears(ByteView bytes, const std::vector<Bytes>& messages) {
  return std::any_of(messages.begin(), messages.end(), [&](const Bytes& message) {
    return std::search(message.begin(), message.end(), bytes.begin(), bytes.end()) != message.end();
  });
}

bool appears(const torch::Tensor& values, const std::vector<Bytes>& messages) {
  const auto bytes = values.contiguous();
  return appears(ByteView(static_cast<const std::byte*>(bytes.data_ptr()), bytes.nbytes()), messages);
}

bool appears(const std::string& text, const std::vector<Bytes>& messages) { return appears(std::as_bytes(std::span(text)), messages); }

std::vector<Bytes> sent_by_client(const TrainConfig& config, const TempFolder& folder) {
  Countdown never;
  std::vector<Bytes> seen;
  never.seen = &seen;
  Machines machines(testing::workers_of(config.place), folder.file("state"), never);
  Watcher watcher;
  train(testing::registry(), config, watcher, watcher.stop, &machines);
  return seen;
}

// Everything that leaves the client in a run of one step over these stages.
std::vector<Bytes> sent_by_client(const std::vector<int>& place, const TempFolder& folder) {
  auto config = testing::coordinated_run(place, "none", folder.file("run"));
  config.chunks = 1;
  config.max_steps = 1;
  config.shuffle = false;
  return sent_by_client(config, folder);
}

// All commands of a type.
template <typename One>
std::vector<One> sent(const std::vector<Bytes>& messages) {
  std::vector<One> all;
  for (const Bytes& bytes : messages) {
    auto command = session::read_command(bytes);
    if (command && std::holds_alternative<One>(command.value())) all.push_back(std::get<One>(std::move(command).value()));
  }
  return all;
}

layer::Batch first_batch() {
  std::vector<std::int64_t> ids(16);
  std::iota(ids.begin(), ids.end(), 0);
  return data::make_synthetic(data::DataSpec::Kind::kImages, 5).train->batch(ids);
}

TEST(Privacy, NeitherInputsNorLabelsLeaveTheClient) {
  const TempFolder folder;
  const auto seen = sent_by_client({0, 1, 0}, folder);
  const auto batch = first_batch();
  EXPECT_GT(seen.size(), 5U) << "commands and activations were seen";
  for (std::int64_t i = 0; i < 16; ++i) EXPECT_FALSE(appears(batch.inputs[0][i].flatten().slice(0, 0, 16), seen)) << "sample " << i;
  for (const auto type : {torch::kInt64, torch::kInt32, torch::kFloat32, torch::kUInt8}) {
    EXPECT_FALSE(appears(batch.targets.to(type), seen)) << type;
  }
}

// The test above can fail: a chain's last worker, which has the loss, is sent the labels.
TEST(Privacy, LabelsGoToAClustersLastWorker) {
  const TempFolder folder;
  EXPECT_TRUE(appears(first_batch().targets, sent_by_client({0, 1}, folder)));
}

constexpr std::uint64_t kSeed = 0x5ec4e75eedc0ffeeULL;

TrainConfig run_from_scratch(const TempFolder& folder) {
  auto config = testing::coordinated_run({0, 1, 0}, "conv:4x2>uniform:8", folder.file("run"));
  config.model = "cnn";
  config.cuts = {"1", "3"};
  config.seed = kSeed;
  config.lr_schedule = "polynomial";
  config.warmup = 7919;
  config.epochs = 104729;
  config.lr = 0.0173205;
  config.max_steps = 2;
  return config;
}

TEST(Privacy, NeitherSeedNorSettingsLeaveTheClient) {
  const TempFolder folder;
  const auto seen = sent_by_client(run_from_scratch(folder), folder);
  EXPECT_TRUE(appears(std::to_string(worker_seed(kSeed)), seen)) << "what a server draws dropout from is seen";
  for (const std::string& text :
       {std::to_string(kSeed), std::to_string(static_cast<std::int64_t>(kSeed)), std::string("5ec4e75eedc0ffee")}) {
    EXPECT_FALSE(appears(text, seen)) << text;
  }
  std::array<std::byte, 8> bytes{};
  store(MutableBytes(bytes), 0, kSeed);
  EXPECT_FALSE(appears(ByteView(bytes), seen)) << "little-endian";
  std::reverse(bytes.begin(), bytes.end());
  EXPECT_FALSE(appears(ByteView(bytes), seen)) << "big-endian";
  for (const std::string text : {"polynomial", "warmup", "7919", "epochs", "104729", "0.0173205", "synthetic", "data_part", "client"}) {
    EXPECT_FALSE(appears(text, seen)) << text;
  }
  EXPECT_FALSE(appears(folder.path(), seen)) << "no path";
}

TEST(Privacy, NoPathOfDataOrWeightsLeavesTheClient) {
  const TempFolder folder;
  auto config = run_from_scratch(folder);
  config.codec = "none";
  config.weights = folder.file("first.safetensors");
  const auto spec = data::make_synthetic(data::DataSpec::Kind::kImages, kSeed).train->spec();
  ASSERT_TRUE(model::write_safetensors(config.weights, model::tensors_of(testing::make_model("cnn", spec, 1)), {}));
  const auto seen = sent_by_client(config, folder);
  EXPECT_FALSE(appears(folder.path(), seen));
  EXPECT_FALSE(appears(std::string("first.safetensors"), seen));
}

// What a server knows: its plan, and the first weights of its own layers.
TEST(Privacy, AServersSeedGivesNeitherTheClientsLayersNorTheOrderOfItsData) {
  const TempFolder folder;
  const auto config = run_from_scratch(folder);
  const auto seen = sent_by_client(config, folder);
  const Plan plan = plan_from_json(sent<session::ConfigureCommand>(seen).at(0).spec);
  EXPECT_NE(plan.seed, kSeed);
  const auto own = model::tensors_of(testing::make_model("cnn", plan.data, kSeed));
  const auto guessed = model::tensors_of(testing::make_model("cnn", plan.data, plan.seed));
  model::NamedTensors first_weights;
  for (auto& load : sent<session::LoadCommand>(seen)) first_weights.merge(load.weights);
  for (const char* const name : {"features.0.conv.weight", "features.3.conv.weight", "classifier.linear.weight"}) {
    EXPECT_FALSE(torch::equal(own.at(name), guessed.at(name))) << name;
    EXPECT_FALSE(first_weights.contains(name)) << name << " is the client's";
  }
  EXPECT_TRUE(torch::equal(first_weights.at("features.1.conv.weight"), own.at("features.1.conv.weight")))
      << "the seed decides the first weights of all layers";
  const auto samples = sent<session::StepCommand>(seen).at(0).batch.samples;
  const auto size = data::make_synthetic(data::DataSpec::Kind::kImages, kSeed).train->size();
  const auto order_by = [&](std::uint64_t seed) {
    auto order = data::epoch_order(size, true, seed, 0);
    order.resize(samples.size());
    return order;
  };
  EXPECT_EQ(samples, order_by(kSeed));
  EXPECT_NE(samples, order_by(plan.seed));
}

// A server has no use for the file's name, so the client does not ask it.
TEST(Privacy, AModelThatServersCannotBuildIsRefusedBeforeItsPathLeaves) {
  const TempFolder folder;
  auto config = run_from_scratch(folder);
  config.connect = {"127.0.0.1:1"};
  config.model = "amoebanet_d:3x32";
  config.cuts = {};
  try {
    const auto seen = sent_by_client(config, folder);
    ADD_FAILURE() << seen.size() << " messages";
  } catch (const std::invalid_argument& refused) {
    EXPECT_NE(std::string(refused.what()).find("servers build models by name"), std::string::npos) << refused.what();
  }
}

}  // namespace
}  // namespace epipe::train
