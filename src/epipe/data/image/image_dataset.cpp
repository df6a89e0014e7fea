#include "epipe/data/image/image_dataset.h"

#include "epipe/layer/random.h"

namespace epipe::data {
namespace {

class ImageDataset final : public Dataset {
 public:
  ImageDataset(std::unique_ptr<ImageSource> source, const Recipe& recipe) : source_(std::move(source)), recipe_(recipe) {}

  DataSpec spec() const override { return {DataSpec::Kind::kImages, {Image::kChannels, recipe_.size, recipe_.size}, source_->classes()}; }
  std::int64_t size() const override { return source_->size(); }

  layer::Batch batch(std::span<const std::int64_t> ids, const BatchContext& at) const override {
    const auto count = static_cast<std::int64_t>(ids.size());
    layer::Batch batch;
    auto images = torch::empty({count, Image::kChannels, recipe_.size, recipe_.size});
    batch.targets = torch::empty({count}, torch::kInt64);
    float* out = images.data_ptr<float>();
    std::int64_t* target = batch.targets.data_ptr<std::int64_t>();
    const std::uint64_t key = layer::mix(layer::mix(layer::key_of(at.seed, "augment"), at.epoch), at.step);
    for (const std::int64_t id : ids) {
      Draws draws(layer::mix(key, static_cast<std::uint64_t>(id)));
      normalize_into(apply(recipe_, source_->load(id), draws), out);
      out += Image::kChannels * recipe_.size * recipe_.size;
      *target++ = source_->label(id);
    }
    batch.inputs = {images};
    batch.samples.assign(ids.begin(), ids.end());
    return batch;
  }

 private:
  std::unique_ptr<ImageSource> source_;
  Recipe recipe_;
};

}  // namespace

std::unique_ptr<Dataset> make_image_dataset(std::unique_ptr<ImageSource> source, const Recipe& recipe) {
  return std::make_unique<ImageDataset>(std::move(source), recipe);
}

}  // namespace epipe::data
