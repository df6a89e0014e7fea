#include "epipe/data/text/token_dataset.h"

#include <algorithm>

namespace epipe::data {
namespace {

class TokenDataset final : public Dataset {
 public:
  TokenDataset(TokenStore store, std::span<const TokenSample> samples, DataSpec spec, std::int32_t pad)
      : store_(std::move(store)), samples_(samples), spec_(std::move(spec)), pad_(pad) {}

  DataSpec spec() const override { return spec_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(samples_.size()); }

  layer::Batch batch(std::span<const std::int64_t> ids, const BatchContext&) const override {
    const auto count = static_cast<std::int64_t>(ids.size());
    const std::int64_t length = spec_.max_length();
    auto tokens = torch::full({count, length}, pad_, torch::kInt64);
    auto targets = torch::full({count, length}, layer::kNoTarget, torch::kInt64);
    for (std::int64_t i = 0; i < count; ++i) {
      const TokenSample& sample = samples_[static_cast<std::size_t>(ids[static_cast<std::size_t>(i)])];
      const auto row = store_.tokens.subspan(sample.begin, std::min<std::size_t>(sample.count, static_cast<std::size_t>(length)));
      std::copy(row.begin(), row.end(), tokens.data_ptr<std::int64_t>() + i * length);
      std::copy(row.begin() + sample.prompt, row.end(), targets.data_ptr<std::int64_t>() + i * length + sample.prompt);
    }
    layer::Batch batch;
    batch.inputs = {tokens};
    batch.targets = targets;
    batch.samples.assign(ids.begin(), ids.end());
    return batch;
  }

 private:
  TokenStore store_;
  std::span<const TokenSample> samples_;
  DataSpec spec_;
  std::int32_t pad_;
};

}  // namespace

std::unique_ptr<Dataset> make_token_dataset(TokenStore store, std::size_t first, std::size_t last, DataSpec spec, std::int32_t pad) {
  const auto samples = store.samples.subspan(first, last - first);
  return std::make_unique<TokenDataset>(std::move(store), samples, std::move(spec), pad);
}

}  // namespace epipe::data
