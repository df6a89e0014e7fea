#include "epipe/train/loss.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "epipe/train/next_token_loss.h"

namespace epipe::train {
namespace {

constexpr const char* kByTheData = "auto";

pipeline::LossResult cross_entropy(const layer::Tensors& outputs, const torch::Tensor& targets) {
  const auto logits = outputs[0].to(torch::kFloat32);
  return {torch::nll_loss(torch::log_softmax(logits, -1), targets, {}, at::Reduction::Sum), logits.detach().argmax(-1).eq(targets).sum(),
          logits.detach()};
}

pipeline::LossResult squared_error(const layer::Tensors& outputs, const torch::Tensor& targets) {
  const auto values = outputs[0].to(torch::kFloat32).reshape(targets.sizes());
  return {(values - targets).square().mean(-1).sum(), {}, values.detach()};
}

}  // namespace

pipeline::Loss make_loss(const data::DataSpec& data) {
  if (data.next_token) return next_token_loss;
  return data.regression ? squared_error : cross_entropy;
}

void Losses::add(const std::string& name, pipeline::Loss loss) {
  const auto known = names();
  if (name.empty() || name.find_first_of(" ,\"'\n") != std::string::npos) {
    throw std::invalid_argument(fmt::format("\"{}\" is not a valid name for a loss: expected one without commas, quotes and spaces", name));
  }
  if (std::find(known.begin(), known.end(), name) != known.end()) {
    throw std::invalid_argument(fmt::format("a loss {} exists already; choose another name", name));
  }
  own_.emplace(name, std::move(loss));
}

pipeline::Loss Losses::find(const std::string& name, const data::DataSpec& data) const {
  if (name == kByTheData) return make_loss(data);
  if (const auto found = own_.find(name); found != own_.end()) return found->second;
  throw std::invalid_argument(fmt::format("unknown loss \"{}\"; known are {}", name, fmt::join(names(), ", ")));
}

std::vector<std::string> Losses::names() const {
  std::vector<std::string> all = {kByTheData};
  for (const auto& [name, loss] : own_) all.push_back(name);
  return all;
}

}  // namespace epipe::train
