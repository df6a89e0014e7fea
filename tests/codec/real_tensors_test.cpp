// Distortion on tensors from real training runs. They are not part of the repository: EPIPE_SHARED names the folder that
// holds tensors/*.npy (default: ../shared beside the checkout); without it these tests are skipped.
#include <gtest/gtest.h>

#include <filesystem>

#include "epipe/codec/measure.h"
#include "epipe/data/npy.h"
#include "support/codecs.h"

namespace epipe::codec {
namespace {

using namespace epipe::testing;

std::filesystem::path tensors() {
  const char* const shared = std::getenv("EPIPE_SHARED");
  return (shared != nullptr ? std::filesystem::path(shared) : std::filesystem::path(EPIPE_SOURCE_DIR).parent_path() / "shared") / "tensors";
}

struct Expected {
  const char* tensor;
  double sort_6_2;  // rel_error the reference prototype measured
};

class RealTensor : public ::testing::TestWithParam<Expected> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(tensors())) GTEST_SKIP() << "no real tensors at " << tensors() << "; set EPIPE_SHARED";
  }
};

INSTANTIATE_TEST_SUITE_P(Tensors, RealTensor,
                         ::testing::Values(Expected{"mobilenet_cifar10_act0", 4.5e-5}, Expected{"mobilenet_cifar10_grad0", 1.5e-2},
                                           Expected{"mobilenet_cifar10_act1", 1.7e-4}, Expected{"mobilenet_cifar10_grad1", 4.8e-4},
                                           Expected{"roberta_sst2_act0", 2.8e-4}, Expected{"roberta_sst2_grad0", 4.9e-3},
                                           Expected{"roberta_sst2_act1", 2.6e-4}, Expected{"roberta_sst2_grad1", 9.1e-4}));

TEST_P(RealTensor, SortQuantizationReachesTheReferencesError) {
  const auto x = data::read_npy((tensors() / (std::string(GetParam().tensor) + ".npy")).string());
  ASSERT_TRUE(x.ok()) << x.error().text();
  const double error = relative_error(x.value(), round_trip("sort:6+2", x.value()));
  EXPECT_NEAR(error, GetParam().sort_6_2, 0.04 * GetParam().sort_6_2);
}

TEST_P(RealTensor, EveryCodecRoundTrips) {
  const auto x = data::read_npy((tensors() / (std::string(GetParam().tensor) + ".npy")).string());
  ASSERT_TRUE(x.ok()) << x.error().text();
  for (const std::string& spec : every_spec()) {
    if (spec.starts_with("lowrank") || spec == "kmeans:9") continue;  // minutes of decompositions; covered on small tensors
    EXPECT_TRUE(torch::isfinite(round_trip(spec, x.value())).all().item<bool>()) << spec;
  }
}

}  // namespace
}  // namespace epipe::codec
