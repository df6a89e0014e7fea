#pragma once

#include <fmt/format.h>

#include <random>

#include "epipe/planner/inputs.h"

namespace epipe::planner {

// The same for every layer and direction; seconds for a value, and for a frame at each end.
inline CodecCosts codec_of(const std::string& spec, double bits, double frame_bytes, double encode, double decode, double frame_seconds) {
  const FrameCosts frame{{frame_bytes, bits / 8}, {frame_seconds, encode}, {frame_seconds, decode}};
  return {spec, bits, {frame}, {frame}};
}

// Client and server, a link, two codecs, and layers of random costs.
inline Inputs random_inputs(unsigned seed, std::size_t layers, std::size_t workers = 2) {
  std::mt19937 generator(seed);
  const auto draw = [&](double least, double most) { return std::uniform_real_distribution<double>(least, most)(generator); };
  Inputs inputs;
  inputs.model = "random";
  inputs.batch = 16;
  for (std::size_t l = 0; l < layers; ++l) {
    const double parameters = draw(1e3, 1e6);
    inputs.layers.push_back({fmt::format("layer{}", l), draw(1e6, 1e8), parameters, parameters, draw(1e3, 1e5), 0, draw(1e4, 1e6)});
  }
  for (std::size_t w = 0; w < workers; ++w) {
    Worker worker{w == 0 ? "client" : fmt::format("server {}", w)};
    worker.sizes = {0, 1};  // the line through both
    const double speed = w == 0 ? draw(1, 10) : draw(10, 100);
    for (std::size_t l = 0; l < layers; ++l) {
      const double seconds = draw(1e-3, 1e-2) / speed;
      worker.forward.push_back({seconds / 10, seconds / 10 + seconds});
      worker.backward.push_back({seconds / 10, seconds / 10 + 2 * seconds});
    }
    worker.update = 1e-9;
    worker.base = 1e8;
    worker.machine = static_cast<int>(w);
    inputs.workers.push_back(std::move(worker));
    inputs.cores.push_back(draw(1, 8));
  }
  inputs.link = {draw(1e5, 1e8), draw(1e5, 1e8), draw(0, 0.05), 1e-9};
  inputs.codecs = {codec_of("none", 32, 64, 1e-9, 1e-9, 1e-6), codec_of("auto:2", 2, 200, draw(5e-9, 5e-8), 1e-8, 1e-5)};
  return inputs;
}

// Two workers of equal layers and no link to speak of.
inline Inputs equal_inputs(std::size_t layers) {
  Inputs inputs = random_inputs(1, layers);
  inputs.link = {};
  inputs.cores = {kUnlimited, kUnlimited};
  inputs.codecs = {codec_of("none", 32, 0, 0, 0, 0)};
  for (Layer& layer : inputs.layers) layer.values = 1000;
  for (Worker& worker : inputs.workers) {
    worker.update = 0;
    worker.forward.assign(layers, {0, 1e-3});
    worker.backward.assign(layers, {0, 2e-3});
  }
  return inputs;
}

}  // namespace epipe::planner
