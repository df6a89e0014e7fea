#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>

#include "epipe/data/dataset.h"
#include "epipe/layer/random.h"

namespace epipe::data {
namespace {

constexpr std::int64_t kTrainSamples = 2048;
constexpr std::int64_t kValidationSamples = 512;

// Validation samples continue where the training samples end, so no sample is in both.
struct SampleRange {
  std::int64_t first;
  std::int64_t size;
};

class SyntheticImages final : public Dataset {
 public:
  SyntheticImages(std::uint64_t seed, SampleRange part) : seed_(seed), part_(part) {
    patterns_ = torch::empty({kClasses, kChannels, kSize, kSize});
    for (std::int64_t c = 0; c < kClasses; ++c) {
      // Low frequencies only: a small random map, enlarged.
      auto coarse = torch::empty({1, kChannels, 4, 4});
      layer::fill_normal(coarse, 1, layer::mix(layer::key_of(seed_, "pattern"), static_cast<std::uint64_t>(c)));
      patterns_[c] = torch::upsample_bilinear2d(coarse, {kSize, kSize}, true)[0];
    }
  }

  DataSpec spec() const override { return {DataSpec::Kind::kImages, {kChannels, kSize, kSize}, kClasses}; }
  std::int64_t size() const override { return part_.size; }

  layer::Batch batch(std::span<const std::int64_t> ids, const BatchContext&) const override {
    const torch::NoGradGuard no_grad;
    const auto count = static_cast<std::int64_t>(ids.size());
    layer::Batch batch;
    auto images = torch::empty({count, kChannels, kSize, kSize});
    batch.targets = torch::empty({count}, torch::kInt64);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint64_t key =
          layer::mix(layer::key_of(seed_, "image"), static_cast<std::uint64_t>(part_.first + ids[static_cast<std::size_t>(i)]));
      const auto label = static_cast<std::int64_t>(layer::mix(key, 0) % kClasses);
      const auto down = static_cast<std::int64_t>(layer::mix(key, 1) % 5) - 2;
      const auto right = static_cast<std::int64_t>(layer::mix(key, 2) % 5) - 2;
      auto noise = torch::empty({kChannels, kSize, kSize});
      layer::fill_normal(noise, kNoise, layer::mix(key, 3));
      images[i] = torch::roll(patterns_[label], {down, right}, {1, 2}) + noise;
      batch.targets[i] = label;
    }
    batch.inputs = {images};
    batch.samples.assign(ids.begin(), ids.end());
    return batch;
  }

 private:
  static constexpr std::int64_t kClasses = 10;
  static constexpr std::int64_t kChannels = 3;
  static constexpr std::int64_t kSize = 16;
  static constexpr double kNoise = 2.5;

  std::uint64_t seed_;
  SampleRange part_;
  torch::Tensor patterns_;  // [classes, C, H, W]
};

class SyntheticText final : public Dataset {
 public:
  SyntheticText(std::uint64_t seed, SampleRange part) : seed_(seed), part_(part) {}

  DataSpec spec() const override { return {DataSpec::Kind::kText, {kLength}, kClasses, kVocabulary}; }
  std::int64_t size() const override { return part_.size; }

  layer::Batch batch(std::span<const std::int64_t> ids, const BatchContext&) const override {
    const auto count = static_cast<std::int64_t>(ids.size());
    layer::Batch batch;
    auto tokens = torch::zeros({count, kLength}, torch::kInt64);
    auto mask = torch::zeros({count, kLength});
    batch.targets = torch::empty({count}, torch::kInt64);
    auto token = tokens.accessor<std::int64_t, 2>();
    auto kept = mask.accessor<float, 2>();
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint64_t key =
          layer::mix(layer::key_of(seed_, "text"), static_cast<std::uint64_t>(part_.first + ids[static_cast<std::size_t>(i)]));
      const auto label = static_cast<std::int64_t>(layer::mix(key, 0) % kClasses);
      const auto length = kLength / 2 + static_cast<std::int64_t>(layer::mix(key, 1) % (kLength / 2 + 1));
      for (std::int64_t t = 0; t < length; ++t) {
        const std::uint64_t draw = layer::mix(key, 2 + static_cast<std::uint64_t>(t));
        // Every second word, on average, comes from the label's group; the others from anywhere.
        const auto group = draw % 2 == 0 ? label : static_cast<std::int64_t>(draw / 2 % kClasses);
        token[i][t] = 1 + group * kWordsPerClass + static_cast<std::int64_t>(draw / 16 % kWordsPerClass);
        kept[i][t] = 1;
      }
      batch.targets[i] = label;
    }
    batch.inputs = {tokens};
    batch.side = {mask};
    batch.samples.assign(ids.begin(), ids.end());
    return batch;
  }

 private:
  static constexpr std::int64_t kClasses = 4;
  static constexpr std::int64_t kWordsPerClass = 15;
  static constexpr std::int64_t kVocabulary = 64;
  static constexpr std::int64_t kLength = 16;

  std::uint64_t seed_;
  SampleRange part_;
};

template <typename Kind>
Splits make_synthetic_splits(std::uint64_t seed) {
  return {std::make_unique<Kind>(seed, SampleRange{0, kTrainSamples}),
          std::make_unique<Kind>(seed, SampleRange{kTrainSamples, kValidationSamples})};
}

}  // namespace

Splits make_synthetic(DataSpec::Kind kind, std::uint64_t seed) {
  return kind == DataSpec::Kind::kImages ? make_synthetic_splits<SyntheticImages>(seed) : make_synthetic_splits<SyntheticText>(seed);
}

std::vector<std::int64_t> epoch_order(std::int64_t size, bool shuffle, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  if (!shuffle) return order;
  const std::uint64_t key = layer::key_of(seed, "order/" + std::to_string(epoch));  // one epoch does not reveal the others
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[layer::mix(key, i) % i]);  // Fisher and Yates
  return order;
}

}  // namespace epipe::data
