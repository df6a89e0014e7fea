#include "epipe/layer/initialization.h"

#include <cmath>

#include "epipe/layer/lora.h"
#include "epipe/layer/random.h"

namespace epipe::layer {
namespace {

using Rule = Initialization::Rule;

double fan_in(const torch::Tensor& weight) { return static_cast<double>(weight.numel()) / static_cast<double>(weight.size(0)); }
double fan_out(const torch::Tensor& weight) { return static_cast<double>(weight.numel()) / static_cast<double>(weight.size(1)); }

void fill(torch::Tensor& weight, Rule rule, double deviation, std::uint64_t key) {
  switch (rule) {
    case Rule::kUniform: return fill_uniform(weight, 1 / std::sqrt(fan_in(weight)), key);
    case Rule::kFanOut: return fill_normal(weight, std::sqrt(2 / fan_out(weight)), key);
    case Rule::kNormal: return fill_normal(weight, deviation, key);
  }
}

// The product of the two starts at 0.
void initialize_lora(torch::Tensor& weight, const std::string& name, std::uint64_t seed) {
  if (name.ends_with("lora_A.weight")) return fill(weight, Rule::kUniform, 0, key_of(seed, name));
  const torch::NoGradGuard no_grad;
  weight.zero_();
}

}  // namespace

void initialize(Layer& layer, std::uint64_t seed, const Initialization& how) {
  const auto parameters = layer.named_parameters();
  for (const auto& item : parameters) {
    torch::Tensor weight = item.value();
    if (weight.dim() < 2) continue;  // biases and scales keep their module's initial values
    const std::string name = layer.full_name(item.key());
    if (is_lora(name)) {
      initialize_lora(weight, name, seed);
      continue;
    }
    fill(weight, weight.dim() == 2 ? how.linear : how.convolution, how.deviation, key_of(seed, name));
    if (!how.random_bias || weight.dim() != 2) continue;
    const std::string bias_key = item.key().substr(0, item.key().size() - std::string_view("weight").size()) + "bias";
    torch::Tensor bias = parameters[bias_key];
    fill_uniform(bias, 1 / std::sqrt(fan_in(weight)), key_of(seed, layer.full_name(bias_key)));
  }
}

}  // namespace epipe::layer
