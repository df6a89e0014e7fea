#include "epipe/data/text/text_dataset.h"

#include <algorithm>

namespace epipe::data {
namespace {

class TextDataset final : public Dataset {
 public:
  TextDataset(Sentences sentences, DataSpec spec, std::int32_t pad) : sentences_(std::move(sentences)), spec_(std::move(spec)), pad_(pad) {}

  DataSpec spec() const override { return spec_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(sentences_.ends.size()); }

  layer::Batch batch(std::span<const std::int64_t> ids, const BatchContext&) const override {
    const auto count = static_cast<std::int64_t>(ids.size());
    const std::int64_t length = spec_.max_length();
    layer::Batch batch;
    auto tokens = torch::empty({count, length}, torch::kInt64);
    auto mask = torch::empty({count, length});
    for (std::int64_t i = 0; i < count; ++i) {
      copy(ids[static_cast<std::size_t>(i)], tokens.data_ptr<std::int64_t>() + i * length, mask.data_ptr<float>() + i * length);
    }
    batch.inputs = {tokens};
    if (!sentences_.types.empty()) batch.inputs.push_back(types(ids));
    batch.side = {mask};
    batch.targets = targets(ids);
    batch.samples.assign(ids.begin(), ids.end());
    return batch;
  }

 private:
  void copy(std::int64_t id, std::int64_t* tokens, float* mask) const {
    const auto i = static_cast<std::size_t>(id);
    const std::size_t begin = i == 0 ? 0 : sentences_.ends[i - 1];
    const std::size_t count = sentences_.ends[i] - begin;
    for (std::size_t t = 0; t < static_cast<std::size_t>(spec_.max_length()); ++t) {
      tokens[t] = t < count ? sentences_.tokens[begin + t] : pad_;
      mask[t] = t < count ? 1.0F : 0.0F;
    }
  }

  torch::Tensor types(std::span<const std::int64_t> ids) const {
    auto all = torch::zeros({static_cast<std::int64_t>(ids.size()), spec_.max_length()}, torch::kInt64);
    std::int64_t* out = all.data_ptr<std::int64_t>();
    for (const std::int64_t id : ids) {
      const auto i = static_cast<std::size_t>(id);
      const std::size_t begin = i == 0 ? 0 : sentences_.ends[i - 1];
      std::copy(sentences_.types.begin() + static_cast<std::ptrdiff_t>(begin),
                sentences_.types.begin() + static_cast<std::ptrdiff_t>(sentences_.ends[i]), out);
      out += spec_.max_length();
    }
    return all;
  }

  torch::Tensor targets(std::span<const std::int64_t> ids) const {
    auto values = torch::empty({static_cast<std::int64_t>(ids.size())});
    float* out = values.data_ptr<float>();
    for (const std::int64_t id : ids) *out++ = sentences_.targets[static_cast<std::size_t>(id)];
    return spec_.regression ? values.unsqueeze(1) : values.to(torch::kInt64);
  }

  Sentences sentences_;
  DataSpec spec_;
  std::int32_t pad_;
};

}  // namespace

void Sentences::add(const TokenIds& sentence, float target) {
  tokens.insert(tokens.end(), sentence.begin(), sentence.end());
  ends.push_back(tokens.size());
  targets.push_back(target);
}

void Sentences::add(const Encoding& sentence, float target) {
  types.insert(types.end(), sentence.types.begin(), sentence.types.end());
  add(sentence.ids, target);
}

std::unique_ptr<Dataset> make_text_dataset(Sentences sentences, DataSpec spec, std::int32_t pad) {
  return std::make_unique<TextDataset>(std::move(sentences), std::move(spec), pad);
}

}  // namespace epipe::data
