#include "epipe/data/subset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace epipe::data {
namespace {

// The seed of the order in which samples are taken, so that half of the data includes a quarter of the data.
constexpr std::uint64_t kOrder = 0x9e3779b97f4a7c15;

std::vector<std::int64_t> chosen(std::int64_t size, double share) {
  auto ids = epoch_order(size, /*shuffle=*/true, kOrder, 0);
  ids.resize(static_cast<std::size_t>(std::max<std::int64_t>(1, std::llround(share * static_cast<double>(size)))));
  std::sort(ids.begin(), ids.end());
  return ids;
}

class PartOfDataset final : public Dataset {
 public:
  PartOfDataset(std::unique_ptr<Dataset> whole, double share) : whole_(std::move(whole)), ids_(chosen(whole_->size(), share)) {}

  DataSpec spec() const override { return whole_->spec(); }
  std::int64_t size() const override { return static_cast<std::int64_t>(ids_.size()); }
  layer::Batch batch(std::span<const std::int64_t> ids, const BatchContext& at) const override {
    std::vector<std::int64_t> wanted;
    for (const std::int64_t id : ids) wanted.push_back(ids_.at(static_cast<std::size_t>(id)));
    return whole_->batch(wanted, at);
  }

 private:
  std::unique_ptr<Dataset> whole_;
  std::vector<std::int64_t> ids_;  // in the whole set, ascending
};

}  // namespace

Splits part_of(Splits splits, double share) {
  if (!(share > 0) || share > 1)
    throw std::invalid_argument(fmt::format("expected a share of the data above 0 and up to 1, got {}", share));
  if (share == 1) return splits;
  return {std::make_unique<PartOfDataset>(std::move(splits.train), share),
          std::make_unique<PartOfDataset>(std::move(splits.validation), share), std::move(splits.notes)};
}

}  // namespace epipe::data
