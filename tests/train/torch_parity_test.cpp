// Twenty steps of training against torch.optim, torch.optim.lr_scheduler and nn.BatchNorm2d in Python: learning rates, losses, weights and
// running statistics.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "epipe/model/safetensors.h"
#include "epipe/train/lr_schedule.h"
#include "epipe/train/optimizer.h"
#include "support/model_run.h"
#include "support/python.h"
#include "support/temp_folder.h"
#include "support/training.h"

namespace epipe::train {
namespace {

using namespace epipe::testing;

constexpr std::int64_t kSteps = 20;

struct Case {
  std::string optimizer;
  double lr;
  double momentum;
  bool nesterov;
  double weight_decay;
  std::string schedule;
  double power;
  std::int64_t warmup;

  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.optimizer << " " << c.schedule << " warm-up " << c.warmup; }
};

class TorchTraining : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!python_has("torch")) GTEST_SKIP() << "no PyTorch for " << python() << "; install python3-torch";
  }
};

INSTANTIATE_TEST_SUITE_P(
    Optimizers, TorchTraining,
    ::testing::Values(Case{"sgd", 0.05, 0, false, 0, "constant", 1, 0}, Case{"sgd", 0.05, 0.9, false, 1e-3, "cosine", 1, 0},
                      Case{"sgd", 0.05, 0.9, true, 1e-3, "linear", 1, 5}, Case{"adam", 0.002, 0, false, 1e-2, "polynomial", 2, 4},
                      Case{"adamw", 0.002, 0, false, 1e-2, "linear", 1, 2}, Case{"adamw", 0.002, 0, false, 0.1, "cosine", 1, 3}));

TEST_P(TorchTraining, IsTheSame) {
  const Case& c = GetParam();
  at::set_num_threads(1);
  const auto model = make_model("cnn", kImages, 4);
  std::vector<layer::Batch> batches;
  layer::Tensors images;
  layer::Tensors labels;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    batches.push_back(random_batch(kImages, 8, static_cast<std::uint64_t>(step)));
    images.push_back(batches.back().inputs[0]);
    labels.push_back(batches.back().targets);
  }
  const TempFolder folder;
  auto given = model::tensors_of(model);
  given["input.x"] = torch::stack(images);
  given["input.y"] = torch::stack(labels);
  ASSERT_TRUE(model::write_safetensors(folder.file("in"), given));
  run_python("training_reference.py",
             fmt::format("{} {} --optimizer {} --lr {} --momentum {} --nesterov {} --weight-decay {} --schedule {} --power {} --warmup {}",
                         folder.file("in"), folder.file("out"), c.optimizer, c.lr, c.momentum, c.nesterov ? 1 : 0, c.weight_decay,
                         c.schedule, c.power, c.warmup),
             folder.file("log"));
  if (HasFatalFailure()) return;
  const auto theirs = model::read_safetensors(folder.file("out"));
  ASSERT_TRUE(theirs.ok()) << theirs.error().text();

  OptimizerConfig config;
  config.kind = parse_optimizer(c.optimizer);
  config.momentum = c.momentum;
  config.nesterov = c.nesterov;
  config.weight_decay = c.weight_decay;
  NamedParameters parameters;
  for (const auto& layer : model.layers) {
    for (const auto& item : layer->named_parameters()) parameters.emplace_back(layer->full_name(item.key()), item.value());
  }
  Optimizer optimizer(config, parameters);
  const LrSchedule schedule{parse_lr_schedule(c.schedule), c.lr, c.warmup, kSteps, c.power};
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const auto& batch = batches[static_cast<std::size_t>(step)];
    for (auto& [name, p] : parameters) p.mutable_grad() = torch::Tensor();
    const auto loss = torch::nll_loss(torch::log_softmax(forward(model, batch, true), -1), batch.targets);
    loss.backward();
    EXPECT_NEAR(schedule.at(step), theirs.value().tensors.at("lr")[step].item<double>(), 1e-9) << "step " << step;
    EXPECT_NEAR(loss.item<double>(), theirs.value().tensors.at("loss")[step].item<double>(), 1e-4) << "step " << step;
    optimizer.step(schedule.at(step));
    for (const auto& layer : model.layers) layer->commit_batch();
  }
  for (const auto& [name, x] : model::tensors_of(model)) {
    EXPECT_LT(relative_difference(x, theirs.value().tensors.at(name)), 1e-4) << name;
  }
}

}  // namespace
}  // namespace epipe::train
