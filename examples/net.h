#pragma once

#include <torch/torch.h>

// The model of the examples, an ordinary Sequential for images [B, channels, H, W].
inline torch::nn::Sequential make_net(std::int64_t channels, std::int64_t classes) {
  namespace nn = torch::nn;
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(channels, 16, 3).padding(1)), nn::BatchNorm2d(16), nn::ReLU(),
                        nn::Conv2d(nn::Conv2dOptions(16, 32, 3).stride(2).padding(1)), nn::BatchNorm2d(32), nn::ReLU(),
                        nn::AdaptiveAvgPool2d(4), nn::Flatten(), nn::Linear(512, classes));
}
