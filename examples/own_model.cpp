// The program `epipe` with your own model, data and loss: own_model train --model mynet --data stripes --loss smoothed ...
// A server for it is the same program: own_model serve ...
#include <epipe/epipe.h>

#include <cmath>

#include "net.h"

namespace {

// Images of 8 classes: stripes with random offset, wider for higher classes.
class Stripes final : public epipe::Dataset {
 public:
  explicit Stripes(std::int64_t size) : size_(size) {}

  epipe::DataSpec spec() const override { return {.shape = {1, 16, 16}, .classes = kClasses}; }
  std::int64_t size() const override { return size_; }
  epipe::Batch batch(std::span<const std::int64_t> ids, std::uint64_t, std::uint64_t, std::uint64_t) const override {
    std::vector<torch::Tensor> images;
    std::vector<std::int64_t> labels;
    for (const std::int64_t id : ids) {
      labels.push_back(id % kClasses);
      const auto row = torch::sin((torch::arange(16.0) + static_cast<double>(id)) / (1.0 + static_cast<double>(id % kClasses)));
      images.push_back(row.to(torch::kFloat32).view({1, 16, 1}).expand({1, 16, 16}));
    }
    return {.inputs = {torch::stack(images)}, .targets = torch::tensor(labels)};
  }

 private:
  static constexpr std::int64_t kClasses = 8;
  std::int64_t size_;
};

epipe::Datasets open_stripes(const std::string& argument) {
  const std::int64_t size = argument.empty() ? 512 : std::stoll(argument);
  return {std::make_unique<Stripes>(size), std::make_unique<Stripes>(64)};
}

// Cross entropy against targets that are 90 % sure.
epipe::LossResult smoothed(const torch::Tensor& logits, const torch::Tensor& labels) {
  const auto log_p = torch::log_softmax(logits, -1);
  const auto sum = 0.9 * torch::nll_loss(log_p, labels, {}, torch::Reduction::Sum) - 0.1 * log_p.mean(-1).sum();
  return {sum, logits.detach().argmax(-1).eq(labels).sum()};
}

}  // namespace

int main(int argc, char** argv) {
  epipe::Registry models = epipe::builtin_models();
  models.add("mynet", [](const epipe::DataSpec& data) { return epipe::layers(make_net(data.shape[0], data.classes)); });
  models.add_dataset("stripes", open_stripes);
  models.add_loss("smoothed", smoothed);
  return epipe::main(argc, argv, models);
}
