// Activations and gradients of cuts, layer by layer, against one run of autograd through all layers.
#include <gtest/gtest.h>

#include "epipe/model/costs.h"
#include "support/model_run.h"
#include "support/training.h"

namespace epipe::model {
namespace {

using namespace epipe::testing;

torch::Tensor loss_of(const layer::Tensors& outputs) { return outputs[0].square().sum(); }

class BoundaryTensors : public ::testing::TestWithParam<const char*> {};

TEST_P(BoundaryTensors, AreThoseOfOneRunOfAllLayers) {
  const std::string name = GetParam();
  const data::DataSpec& data = name == "transformer" ? kText : kImages;
  const auto batch = random_batch(data, 4, 1);
  const auto at = context_of(batch, true);
  const Architecture architecture = architecture_of(name, data);
  const auto found = boundary_tensors(architecture, batch.inputs, at, loss_of);

  layer::Tensors x = batch.inputs;
  std::vector<torch::Tensor> ends;
  for (const LayerMaker& maker : architecture.layers) {
    const auto layer = maker.make();
    layer->initialize(0);
    x = layer->forward(x, at);
    x[0].retain_grad();
    ends.push_back(x[0]);
  }
  loss_of(x).backward();
  ASSERT_EQ(found.size() + 1, ends.size());
  for (std::size_t l = 0; l < found.size(); ++l) {
    EXPECT_TRUE(torch::equal(found[l].activation, ends[l].detach())) << l;
    EXPECT_TRUE(torch::allclose(found[l].gradient, ends[l].grad(), 1e-5, 1e-7)) << l;
    EXPECT_GT(found[l].gradient.abs().max().item<float>(), 0) << l;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, BoundaryTensors, ::testing::Values("cnn", "mlp", "transformer"));

}  // namespace
}  // namespace epipe::model
