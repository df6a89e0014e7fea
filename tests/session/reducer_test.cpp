// The sums of gradients beside a backward, by threads with gloo between them.
#include "epipe/session/reducer.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <thread>

#include "epipe/base/clock.h"
#include "epipe/pipeline/pipeline.h"
#include "epipe/transport/c10d/support.h"

namespace epipe::session {
namespace {

using layer::ForwardContext;
using layer::Tensors;

#define NEEDS_GLOO() \
  if (!transport::gloo_part().available) GTEST_SKIP() << "gloo is not in this build"

// Runs `work` as every replica, each in a thread. Reports what they throw.
void as_replicas(int size, const std::function<void(std::unique_ptr<transport::Group>)>& work) {
  transport::GroupConfig config;
  config.size = size;
  config.master_port = transport::free_port();
  config.timeout = std::chrono::seconds(20);
  std::vector<std::thread> replicas;
  for (config.rank = 0; config.rank < size; ++config.rank) {
    replicas.emplace_back([&work, config] {
      try {
        work(transport::make_group(config));
      } catch (const std::exception& error) {
        ADD_FAILURE() << "replica " << config.rank << ": " << error.what();
      }
    });
  }
  for (auto& replica : replicas) replica.join();
}

// y = x, and a backward that calls `on_backward`.
struct Gate : torch::autograd::Function<Gate> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x, std::int64_t on_backward) {
    context->saved_data["on_backward"] = on_backward;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    (*reinterpret_cast<std::function<void()>*>(context->saved_data["on_backward"].toInt()))();
    return {gradients[0], torch::Tensor()};
  }
};

// y = gate(x * weight); `unused`, where it has one, has no part in it.
class Scale final : public layer::Layer {
 public:
  Scale(const std::string& name, std::function<void()> on_backward, bool has_unused = false)
      : Layer(name), on_backward_(std::move(on_backward)), weight(register_parameter("weight", torch::ones({4}))) {
    if (has_unused) unused = register_parameter("unused", torch::ones({2}));
  }
  Tensors forward(const Tensors& in, const ForwardContext&) override {
    return {Gate::apply(in[0] * weight, reinterpret_cast<std::int64_t>(&on_backward_))};
  }
  double flops(const Tensors&, const Tensors&) const override { return 1; }

 private:
  std::function<void()> on_backward_;

 public:
  torch::Tensor weight;
  torch::Tensor unused;
};

bool sums(const Tracer& tracer, const std::string& name, std::uint64_t step) {
  for (const auto& event : tracer.events()) {
    if (event.name == name && event.step == step) return true;
  }
  return false;
}

layer::Batch batch_of(std::int64_t samples, double value) {
  layer::Batch batch;
  batch.inputs = {torch::full({samples, 4}, value)};
  batch.targets = torch::zeros({samples});
  for (std::int64_t i = 0; i < samples; ++i) batch.samples.push_back(i);
  return batch;
}

pipeline::LossResult sum_of_outputs(const Tensors& outputs, const torch::Tensor&) { return {outputs[0].sum()}; }

// The backward of the first layer, the last to run, does not end before the gradients of the layer behind it are summed.
TEST(Reducer, SumsTheFirstBucketsBeforeTheLastBackwardHasEnded) {
  NEEDS_GLOO();
  as_replicas(2, [](std::unique_ptr<transport::Group> group) {
    Tracer tracer(1000);
    std::uint64_t step = 0;
    int backwards = 0;
    const auto wait_for_sums = [&] {
      if (++backwards % 3 != 0) return;  // of the last of 3 micro-batches
      const Stopwatch watch;
      while (!sums(tracer, "bucket 0", step) && watch.seconds() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_TRUE(sums(tracer, "bucket 0", step)) << "nothing was summed while the backward ran";
      EXPECT_FALSE(sums(tracer, "bucket 1", step)) << "the gradient of this layer is not there yet";
    };
    const std::vector<std::shared_ptr<layer::Layer>> layers = {std::make_shared<Scale>("first", wait_for_sums),
                                                               std::make_shared<Scale>("second", [] {})};
    Reducer reducer(std::move(group), layers, /*bucket_bytes=*/1, &tracer);
    ASSERT_EQ(reducer.buckets(), 2U) << "one per parameter";
    pipeline::PipelineConfig config;
    config.chunks = 3;
    config.exchange = &reducer;
    pipeline::Pipeline pipeline(layers, config, sum_of_outputs);
    for (; step < 3; ++step) pipeline.train_step(batch_of(6, 1), {0, step});
  });
}

TEST(Reducer, SumsInTheOrderOfTheReplicasAndLeavesOutWhatNobodyHas) {
  NEEDS_GLOO();
  as_replicas(3, [](std::unique_ptr<transport::Group> group) {
    const int rank = group->rank();
    const auto layer = std::make_shared<Scale>(
        "only", [] {}, true);
    Reducer reducer(std::move(group), {layer}, 1 << 20, nullptr);
    pipeline::PipelineConfig config;
    config.exchange = &reducer;
    pipeline::Pipeline pipeline({layer}, config, sum_of_outputs);
    const auto result = pipeline.train_step(batch_of(2, rank + 1), {0, 0, 0, false, /*samples=*/6});
    EXPECT_TRUE(torch::allclose(layer->weight.grad(), torch::full({4}, 2.0))) << layer->weight.grad();  // 2 (1 + 2 + 3) / 6
    EXPECT_FALSE(layer->unused.grad().defined());
    EXPECT_EQ(result.workers[0].all_reduce_bytes, 2 * 2 * 3 * sizeof(float)) << "8 floats in 3 parts, each to 2 others, twice";

    if (rank == 2) {  // has no samples this time
      reducer.contribute_nothing(1);
    } else {
      pipeline.train_step(batch_of(2, rank + 1), {0, 1, 0, false, 4});
    }
    EXPECT_TRUE(torch::allclose(layer->weight.grad(), torch::full({4}, 1.5))) << layer->weight.grad();  // 2 (1 + 2) / 4
  });
}

TEST(Reducer, LeavingEndsTheWaitOfTheOthers) {
  NEEDS_GLOO();
  as_replicas(2, [](std::unique_ptr<transport::Group> group) {
    const int rank = group->rank();
    const auto layer = std::make_shared<Scale>(
        "only", [] {}, true);
    Reducer reducer(std::move(group), {layer}, 1 << 20, nullptr);
    reducer.contribute_nothing(0);
    if (rank == 1) return reducer.leave();
    const Stopwatch watch;
    EXPECT_THROW(reducer.contribute_nothing(1), ReplicaLost);
    EXPECT_LT(watch.seconds(), 10);
    EXPECT_THROW(reducer.begin(2), ReplicaLost);
  });
}

}  // namespace
}  // namespace epipe::session
