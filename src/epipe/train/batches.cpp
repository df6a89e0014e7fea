#include "epipe/train/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "epipe/data/open.h"
#include "epipe/data/subset.h"
#include "epipe/model/hf_folder.h"

namespace epipe::train {
namespace {

// For text data: --tokenizer, or the folder of an hf:DIR model.
std::string tokenizer_of(const TrainConfig& config) {
  const bool glue = config.data.starts_with("glue/") && config.bpe.empty();
  const auto folder = model::hf_folder_of(config.model);
  if (!config.tokenizer.empty() || !folder) return config.tokenizer;
  return glue || config.data.starts_with("text:") ? *folder : "";
}

data::Splits open_data(const Registry& registry, const TrainConfig& config, data::DataSpec::Kind kind) {
  const std::int64_t image_size = resizes_on_device(config) ? 0 : config.image_size;
  auto splits = registry.data.open({config.data, image_size, config.augment, config.max_length, config.bpe, tokenizer_of(config), ""}, kind,
                                   config.seed);
  return data::part_of(std::move(splits), config.data_part);
}

void check_batch(const TrainConfig& config) {
  if (config.batch < config.chunks) {
    throw std::invalid_argument(fmt::format("a batch of {} cannot be split into {} chunks", config.batch, config.chunks));
  }
  const std::int64_t least = config.batch / config.replicas;
  if (least >= config.chunks) return;
  throw std::invalid_argument(
      fmt::format("a batch of {} leaves one of {} replicas {} samples, which cannot be split into {} chunks; use a "
                  "batch of at least {}, or fewer chunks or replicas",
                  config.batch, config.replicas, least, config.chunks, config.chunks * config.replicas));
}

}  // namespace

bool resizes_on_device(const TrainConfig& config) {
  if (config.resize_on != "device") return false;
  if (!config.data.starts_with("cifar")) {
    throw std::invalid_argument(fmt::format("--resize-on device takes images that have one size (cifar10, cifar100), got {}", config.data));
  }
  return config.image_size != 0;
}

Batches::Batches(const Registry& registry, const TrainConfig& config, data::DataSpec::Kind kind, int replica)
    : config_(config), replica_(replica), data_(open_data(registry, config, kind)) {
  check_batch(config_);
}

data::DataSpec Batches::spec() const {
  data::DataSpec spec = data_.train->spec();
  if (resizes_on_device(config_)) spec.shape = {spec.shape.at(0), config_.image_size, config_.image_size};
  return spec;
}

std::uint64_t Batches::end_step() const {
  return config_.max_steps > 0 ? std::min(all_steps(), static_cast<std::uint64_t>(config_.max_steps)) : all_steps();
}

data::LoaderConfig Batches::loader_config() const {
  return {config_.batch, config_.shuffle, config_.seed, 0, 0, config_.load_threads, replica_, config_.replicas};
}

std::unique_ptr<data::Loader> Batches::training(std::uint64_t first_step) const {
  data::LoaderConfig loader = loader_config();
  loader.first_step = first_step;
  loader.end_step = std::max(first_step, end_step());
  return std::make_unique<data::Loader>(*data_.train, loader);
}

std::unique_ptr<data::Loader> Batches::validation() const {
  data::LoaderConfig loader = loader_config();
  loader.shuffle = false;
  loader.end_step = validation_steps();
  return std::make_unique<data::Loader>(*data_.validation, loader);
}

}  // namespace epipe::train
