#include "epipe/train/first_samples.h"

#include <numeric>

namespace epipe::train {

FirstSamples first_samples(const TrainConfig& config, const Batches& batches, std::int64_t count) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  FirstSamples sample{batches.training_data().batch(ids), {}};
  if (resizes_on_device(config)) sample.batch.inputs[0] = torch::zeros({sample.batch.size(), 3, config.image_size, config.image_size});
  sample.at.training = false;
  sample.at.samples = sample.batch.samples;
  sample.at.side = sample.batch.side;
  return sample;
}

}  // namespace epipe::train
