#include "epipe/cli/bench/torch_ops.h"

namespace epipe::cli {

TorchOpsEncoded torch_ops_sort(const torch::Tensor& x, int level_bits, int split_bits) {
  const auto flat = x.flatten();
  const auto [sorted, index] = flat.sort();
  const auto runs = sorted.tensor_split(std::int64_t{1} << split_bits);  // the first n mod k get one more
  const auto levels = static_cast<double>((1 << level_bits) - 1);
  std::vector<torch::Tensor> codes;
  std::vector<torch::Tensor> mins;
  std::vector<torch::Tensor> steps;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto low = runs[i][0];
    const auto step = (runs[i][-1] - low) / levels;
    const auto divisor = torch::where(step == 0, torch::ones_like(step), step);
    codes.push_back(torch::round((runs[i] - low) / divisor).to(torch::kUInt8) + static_cast<int>(i << level_bits));
    mins.push_back(low);
    steps.push_back(step);
  }
  auto placed = torch::empty(flat.sizes(), flat.options().dtype(torch::kUInt8));
  placed.scatter_(0, index, torch::cat(codes).to(torch::kUInt8));
  return {placed, torch::stack(mins), torch::stack(steps)};
}

TorchOpsEncoded torch_ops_uniform(const torch::Tensor& x, int bits) {
  const auto flat = x.flatten();
  const auto low = flat.min();
  const auto step = (flat.max() - low) / static_cast<double>((1 << bits) - 1);
  return {torch::round((flat - low) / step).to(torch::kUInt8), low.unsqueeze(0), step.unsqueeze(0)};
}

torch::Tensor torch_ops_decode(const TorchOpsEncoded& encoded, int level_bits, torch::IntArrayRef shape) {
  const auto codes = encoded.codes.to(torch::kInt64);
  const auto run = codes.bitwise_right_shift(level_bits);
  const auto level = codes.bitwise_and((1 << level_bits) - 1).to(torch::kFloat32);
  return (level * encoded.steps.index_select(0, run) + encoded.mins.index_select(0, run)).view(shape);
}

}  // namespace epipe::cli
