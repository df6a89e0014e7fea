#pragma once

#include <memory>

#include "epipe/data/dataset.h"
#include "epipe/data/loader.h"
#include "epipe/train/config.h"
#include "epipe/train/registry.h"

namespace epipe::train {

// Whether the first stage enlarges the images, which costs a device almost nothing and a loader most of its time. Throws
// std::invalid_argument if the images differ in size.
bool resizes_on_device(const TrainConfig& config);

// The data of a run, and its batches in order. `replica`: the replica whose part of every batch this process loads.
class Batches {
 public:
  // Throws std::invalid_argument for missing data, or a batch that cannot be split as configured.
  Batches(const Registry& registry, const TrainConfig& config, data::DataSpec::Kind kind, int replica);

  // As the model sees it.
  data::DataSpec spec() const;
  const std::vector<std::string>& notes() const { return data_.notes; }  // what its user should know
  const data::Dataset& training_data() const { return *data_.train; }
  const data::Dataset& validation_data() const { return *data_.validation; }

  std::uint64_t steps_per_epoch() const { return data::Loader::steps_per_epoch(data_.train->size(), config_.batch); }
  std::uint64_t all_steps() const { return steps_per_epoch() * static_cast<std::uint64_t>(config_.epochs); }
  std::uint64_t end_step() const;  // the step after the last
  std::uint64_t validation_steps() const { return data::Loader::steps_per_epoch(data_.validation->size(), config_.batch); }
  // Loads this replica's parts of the batches from `first_step` on. The loaders must not outlive this.
  std::unique_ptr<data::Loader> training(std::uint64_t first_step) const;
  std::unique_ptr<data::Loader> validation() const;

 private:
  data::LoaderConfig loader_config() const;

  TrainConfig config_;
  int replica_;
  data::Splits data_;
};

}  // namespace epipe::train
