#include "epipe/codec/kernels/tokens.h"

#include <array>
#include <span>

#include "epipe/codec/kernels/scalar.h"

namespace epipe::kernels::scalar_impl {

void quantize(std::span<const float> y, const DeadZone& zone, std::uint8_t* tokens) {
  for (std::size_t i = 0; i < y.size(); ++i) tokens[i] = token_of(level_of(y[i], zone), y[i] < 0);
}

void look_up(std::span<const std::uint8_t> tokens, const std::uint8_t* table_of, const float* values, float* out) {
  for (std::size_t i = 0; i < tokens.size(); ++i) out[i] = values[table_of[i] * kTokenRoom + tokens[i]];
}

void map_bytes(std::span<const std::uint8_t> in, const std::array<std::uint8_t, 16>& map, std::uint8_t* out) {
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = map[in[i]];
}

#include "epipe/codec/kernels/contexts.inc.h"

}  // namespace epipe::kernels::scalar_impl
