#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "epipe/data/data_spec.h"
#include "epipe/layer/batch.h"

namespace epipe::data {

// The position of a batch in a run. Augmentation is a function of this and of the sample's id, never of timing.
struct BatchContext {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
};

// Samples by id. Any thread may call batch().
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual DataSpec spec() const = 0;
  virtual std::int64_t size() const = 0;
  // The samples of these ids, in this order.
  virtual layer::Batch batch(std::span<const std::int64_t> ids, const BatchContext& at) const = 0;
  layer::Batch batch(std::span<const std::int64_t> ids) const { return batch(ids, BatchContext{}); }
};

struct Splits {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> validation;
  std::vector<std::string> notes{};  // what the user should know: e.g. a split that was made here
};

// Generated images [3, 16, 16] of 10 classes: a smooth pattern per class, shifted and hidden in noise. Or texts of 16 tokens out of 64, in
// 4 classes: the most frequent group of words. Learnable, the same for the same seed, nothing to download.
Splits make_synthetic(DataSpec::Kind kind, std::uint64_t seed);

// The ids 0 ... size - 1 in the order of this epoch: a permutation by (seed, epoch), or ascending.
std::vector<std::int64_t> epoch_order(std::int64_t size, bool shuffle, std::uint64_t seed, std::uint64_t epoch);

}  // namespace epipe::data
