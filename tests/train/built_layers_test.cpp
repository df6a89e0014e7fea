// A process builds only the layers it runs, and looks at others one at a time.
#include <gtest/gtest.h>

#include <atomic>

#include "epipe/train/initial_weights.h"
#include "epipe/train/local_setup.h"
#include "support/training.h"

namespace epipe::train {
namespace {

struct Count {
  std::atomic<int> live = 0;
  std::atomic<int> most = 0;
};

// A linear layer that is counted while it lives.
class Counted final : public layer::Layer {
 public:
  Counted(const std::string& name, std::shared_ptr<Count> count) : Layer(name), count_(std::move(count)) {
    weight_ = register_parameter("weight", torch::zeros({5, 5}));
    const int live = ++count_->live;
    if (live > count_->most) count_->most = live;
  }
  ~Counted() override { --count_->live; }
  layer::Tensors forward(const layer::Tensors& in, const layer::ForwardContext&) override { return {in[0].matmul(weight_)}; }
  double flops(const layer::Tensors&, const layer::Tensors&) const override { return 1; }

 private:
  torch::Tensor weight_;
  std::shared_ptr<Count> count_;  // shared with the test
};

model::Architecture counted_layers(int layers, const std::shared_ptr<Count>& count) {
  model::Architecture architecture;
  architecture.name = "counted";
  for (int l = 0; l < layers; ++l) {
    const std::string name = "layer" + std::to_string(l);
    architecture.layers.push_back({name, [name, count] { return std::make_shared<Counted>(name, count); }});
  }
  return architecture;
}

Plan ring() {
  Plan plan;
  plan.data = {data::DataSpec::Kind::kImages, {5}, 5, 0};
  plan.cuts = {1, 9};
  plan.place = {0, 1, 0};
  plan.codecs.resize(2);
  return plan;
}

TEST(BuiltLayers, AreThoseOfTheWorkersThatAreHere) {
  const auto count = std::make_shared<Count>();
  const Resolved run = resolve(ring(), counted_layers(10, count));
  EXPECT_EQ(count->most, 0) << "an architecture has no weights";
  {
    LocalWorkers client;
    client.workers = {0};
    const auto trainer = make_local_trainer(run, std::move(client));
    EXPECT_EQ(count->live, 2) << "the first and the last";
    EXPECT_EQ(count->most, 2) << "and never more";
  }
  LocalWorkers server;
  server.workers = {1};
  const auto trainer = make_local_trainer(run, std::move(server));
  EXPECT_EQ(count->live, 8);
  EXPECT_EQ(count->most, 8);
}

TEST(BuiltLayers, OfOthersAreMadeOneAtATimeForTheirFirstWeights) {
  const auto count = std::make_shared<Count>();
  const InitialWeights initial(counted_layers(10, count), 1, WeightsFiles{}, model::NewParts::kNone);
  for (std::size_t l = 0; l < 10; ++l) EXPECT_EQ(initial.of_layer(l).size(), 1U);
  EXPECT_EQ(count->live, 0);
  EXPECT_EQ(count->most, 1);
}

}  // namespace
}  // namespace epipe::train
