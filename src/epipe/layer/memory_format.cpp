#include "epipe/layer/memory_format.h"

namespace epipe::layer {

Tensors channels_last(Tensors x) {
  for (auto& tensor : x) {
    if (tensor.dim() == 4) tensor = tensor.contiguous(torch::MemoryFormat::ChannelsLast);
  }
  return x;
}

void to_channels_last(Layer& layer) {
  for (auto& parameter : layer.parameters()) {
    if (parameter.dim() == 4) parameter.set_data(parameter.detach().contiguous(torch::MemoryFormat::ChannelsLast));
  }
}

}  // namespace epipe::layer
