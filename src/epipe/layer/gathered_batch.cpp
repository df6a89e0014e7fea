#include "epipe/layer/gathered_batch.h"

namespace epipe::layer {

GatheredBatch::GatheredBatch(const std::vector<std::shared_ptr<Layer>>& layers) {
  for (DeferredBatchNorm* const norm : batch_norms(layers)) {
    seen_.push_back(norm->seen());
    norm->discard_batch();
  }
  for (const auto& layer : layers) {
    totals_.push_back(layer->batch_totals());
    layer->discard_batch();
  }
}

void GatheredBatch::commit(const std::vector<std::shared_ptr<Layer>>& layers) const {
  for (std::size_t l = 0; l < totals_.size(); ++l) {
    if (totals_[l].count_nonzero().item<std::int64_t>() == 0) continue;
    layers[l]->set_batch_totals(totals_[l]);
    layers[l]->commit_batch();
  }
  const auto norms = batch_norms(layers);
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    for (const auto& micro_batch : seen_[i]) norms[i]->see(micro_batch);
  }
  DeferredBatchNorm::commit_together(norms);
}

}  // namespace epipe::layer
