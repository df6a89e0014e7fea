#include "epipe/train/next_token_loss.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "epipe/layer/autocast.h"

namespace epipe::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kLogitsAtOnce = std::int64_t{1} << 24;  // 64 MB in float32

// The sums of losses and of correctly predicted tokens. Gradients are computed together with the loss, while the logits of a part exist,
// and backward only scales them: no logit is computed twice.
class HeadLoss : public torch::autograd::Function<HeadLoss> {
 public:
  // hidden [N, F], weight [V, F], targets [N]
  static variable_list forward(AutogradContext* ctx, const torch::Tensor& hidden, const torch::Tensor& weight, const torch::Tensor& targets,
                               bool training) {
    const bool wants_hidden = training && hidden.requires_grad();
    const bool wants_weight = training && weight.requires_grad();
    const torch::Tensor w = weight.to(hidden.scalar_type());
    torch::Tensor d_hidden = wants_hidden ? torch::empty_like(hidden) : torch::Tensor();
    torch::Tensor d_weight = wants_weight ? torch::zeros_like(weight) : torch::Tensor();
    auto sum = torch::zeros({}, hidden.options().dtype(torch::kFloat32));
    auto correct = torch::zeros({}, hidden.options().dtype(torch::kInt64));
    const std::int64_t step = std::max<std::int64_t>(16, kLogitsAtOnce / weight.size(0));
    for (std::int64_t begin = 0; begin < hidden.size(0); begin += step) {
      const std::int64_t size = std::min(step, hidden.size(0) - begin);
      const auto x = hidden.narrow(0, begin, size);
      const auto target = targets.narrow(0, begin, size);
      auto log_p = torch::log_softmax(torch::matmul(x, w.t()).to(torch::kFloat32), -1);  // [size, V]
      sum += torch::nll_loss(log_p, target, {}, at::Reduction::Sum);
      correct += log_p.argmax(-1).eq(target).sum();
      if (!wants_hidden && !wants_weight) continue;
      log_p.exp_().scatter_add_(1, target.unsqueeze(1), torch::full({size, 1}, -1.0, log_p.options()));
      const auto d_logits = log_p.to(hidden.scalar_type());
      if (wants_hidden) d_hidden.narrow(0, begin, size).copy_(torch::matmul(d_logits, w));
      if (wants_weight) d_weight += torch::matmul(d_logits.t(), x).to(weight.scalar_type());
    }
    ctx->save_for_backward({d_hidden, d_weight});
    ctx->mark_non_differentiable({correct});
    return {sum, correct};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const auto scaled = [&](const torch::Tensor& x) { return x.defined() ? x * gradients[0].to(x.scalar_type()) : torch::Tensor(); };
    return {scaled(saved[0]), scaled(saved[1]), torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

pipeline::LossResult next_token_loss(const layer::Tensors& outputs, const torch::Tensor& targets) {
  TORCH_CHECK(outputs.size() == 2 && outputs[0].dim() == 3, "expected hidden states [B, T, F] and the matrix of the head");
  const std::int64_t length = targets.size(1) - 1;
  const auto next = targets.narrow(1, 1, length).reshape({-1});
  const auto wanted = next.ne(layer::kNoTarget).nonzero().squeeze(1);
  const auto hidden = outputs[0].narrow(1, 0, length).reshape({-1, outputs[0].size(2)}).index_select(0, wanted);
  const auto result = HeadLoss::apply(hidden, outputs[1], next.index_select(0, wanted), torch::GradMode::is_enabled());
  return {result[0], result[1], {}};
}

}  // namespace epipe::train
