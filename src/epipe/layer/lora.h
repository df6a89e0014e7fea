#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "epipe/layer/layer.h"

// Low-rank adaptation (Hu et al. 2021): a linear layer's weights are frozen, and a product of two thin matrices beside them is trained,
// y = x W^T + b + alpha / rank * dropout(x) A^T B^T. The parameters are named NAME.lora_A.weight and NAME.lora_B.weight, as in PEFT.
namespace epipe::layer {

struct LoraConfig {
  std::int64_t rank = 8;
  double alpha = 16;
  double dropout = 0;
  std::vector<std::string> targets{};  // the last part of a linear layer's name: q_proj; empty: the architecture's own choice

  bool operator==(const LoraConfig&) const = default;
  double scale() const { return alpha / static_cast<double>(rank); }
};

// "r=8,alpha=16,dropout=0.1,targets=q_proj+v_proj"; omitted fields have the defaults above. Throws std::invalid_argument.
LoraConfig parse_lora(std::string_view text);
std::string to_string(const LoraConfig& config);

// Adds the thin matrices to the layer's linear layers named in `targets`, and freezes every other parameter of the layer. Returns how many
// linear layers it found.
std::size_t add_lora(Layer& layer, const LoraConfig& config);

// Whether a parameter of this name is one of the thin matrices.
bool is_lora(std::string_view name);

}  // namespace epipe::layer
