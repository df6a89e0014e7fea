#include "epipe/train/loss.h"

namespace epipe::train {

pipeline::LossResult cross_entropy(const layer::Tensors& outputs, const torch::Tensor& targets) {
  const auto& logits = outputs[0];
  return {torch::nll_loss(torch::log_softmax(logits, -1), targets, {}, at::Reduction::Sum),
          static_cast<double>(logits.argmax(-1).eq(targets).sum().item<std::int64_t>())};
}

}  // namespace epipe::train
