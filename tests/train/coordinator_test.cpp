// A run whose workers are in several processes, played by threads, gives the weights of one process.
#include "train/coordinated.h"

namespace epipe::train {
namespace {

using testing::Coordinated;
using testing::Countdown;
using testing::Machines;
using testing::TempFolder;
using testing::Watcher;

TEST_P(Coordinated, OfSeveralProcessesTrainsAsOneProcess) {
  const std::string expected = undisturbed();
  Countdown never;
  Machines machines(workers(), folder_.file("state"), never);
  Watcher watcher;
  const auto several = config("several");
  train(testing::registry(), several, watcher, watcher.stop, &machines);
  testing::expect_equal_weights(expected, several.run_dir);
  EXPECT_TRUE(watcher.notes.empty());
}

TEST(Coordinator, InMixedPrecisionTrainsAsOneProcess) {
  const TempFolder folder;
  auto config = testing::coordinated_run({0, 1, 2, 0}, "none", folder.file("one"));
  config.precision = "bf16";
  testing::run(config);
  config.run_dir = folder.file("several");
  Countdown never;
  Machines machines(3, folder.file("state"), never);
  Watcher watcher;
  train(testing::registry(), config, watcher, watcher.stop, &machines);
  testing::expect_equal_weights(folder.file("one"), config.run_dir);
}

INSTANTIATE_TEST_SUITE_P(RingsAndChains, Coordinated, testing::rings_and_chains());

}  // namespace
}  // namespace epipe::train
