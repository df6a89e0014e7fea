#include "epipe/layer/layer.h"

#include "epipe/layer/initialization.h"

namespace epipe::layer {
namespace {

template <typename Work>
void for_statistics(const Layer& layer, const Work& work) {
  for (const auto& module : layer.modules(/*include_self=*/false)) {
    if (auto* const statistics = dynamic_cast<BatchStatistics*>(module.get())) work(*statistics);
  }
}

}  // namespace

void Layer::initialize(std::uint64_t seed) { layer::initialize(*this, seed); }

void Layer::commit_batch() {
  for_statistics(*this, [](BatchStatistics& s) { s.commit_batch(); });
}

void Layer::discard_batch() {
  for_statistics(*this, [](BatchStatistics& s) { s.discard_batch(); });
}

}  // namespace epipe::layer
