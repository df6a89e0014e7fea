#pragma once

#include <torch/types.h>

#include <memory>
#include <vector>

#include "epipe/layer/batch_norm.h"

namespace epipe::layer {

// What some layers gathered of one batch, taken out of them, so that the next batch can be gathered before this one is committed.
class GatheredBatch {
 public:
  GatheredBatch() = default;
  explicit GatheredBatch(const std::vector<std::shared_ptr<Layer>>& layers);

  // commit_batch() of the same layers, to the bits that it would have had then. They must have gathered nothing since.
  void commit(const std::vector<std::shared_ptr<Layer>>& layers) const;

 private:
  std::vector<std::vector<DeferredBatchNorm::Seen>> seen_;  // by batch_norms()
  std::vector<torch::Tensor> totals_;                       // by layer: what else it has, that is no module of its own
};

}  // namespace epipe::layer
