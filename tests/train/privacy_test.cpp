// Every byte that leaves the client of a run is looked at: neither inputs nor labels are among them.
#include <numeric>

#include "epipe/data/dataset.h"
#include "train/team.h"

namespace epipe::train {
namespace {

using testing::Countdown;
using testing::Machines;
using testing::TempFolder;
using testing::Watcher;

bool appears(const torch::Tensor& values, const std::vector<Bytes>& messages) {
  const auto bytes = values.contiguous();
  const auto* const begin = static_cast<const std::byte*>(bytes.data_ptr());
  const auto* const end = begin + bytes.nbytes();
  return std::any_of(messages.begin(), messages.end(),
                     [&](const Bytes& message) { return std::search(message.begin(), message.end(), begin, end) != message.end(); });
}

// Everything that leaves the client in a run of one step over these stages.
std::vector<Bytes> sent_by_client(const std::vector<int>& place, const TempFolder& folder) {
  auto config = testing::team_run(place, "none", folder.file("run"));
  config.chunks = 1;
  config.max_steps = 1;
  config.shuffle = false;
  Countdown never;
  std::vector<Bytes> seen;
  never.seen = &seen;
  Machines machines(testing::workers_of(place), folder.file("state"), never);
  Watcher watcher;
  train(config, watcher, watcher.stop, &machines);
  return seen;
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

}  // namespace
}  // namespace epipe::train
