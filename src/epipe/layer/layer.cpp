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

void refuse_capture(const ForwardContext& at, std::string_view who, std::string_view why) {
  if (at.capturing) throw NotCapturable(std::string(who) + " " + std::string(why));
}

void Layer::initialize(std::uint64_t seed) { layer::initialize(*this, seed); }

void Layer::commit_batch() {
  for_statistics(*this, [](BatchStatistics& s) { s.commit_batch(); });
}

void Layer::discard_batch() {
  for_statistics(*this, [](BatchStatistics& s) { s.discard_batch(); });
}

torch::Tensor Layer::batch_totals() const {
  std::vector<torch::Tensor> parts = {torch::empty({0}, torch::kFloat64)};
  for_statistics(*this, [&](const BatchStatistics& s) { parts.push_back(s.batch_totals()); });
  return torch::cat(parts);
}

void Layer::set_batch_totals(const torch::Tensor& totals) {
  std::int64_t begin = 0;
  for_statistics(*this, [&](BatchStatistics& s) {
    const std::int64_t size = s.batch_totals().numel();
    s.set_batch_totals(totals.narrow(0, begin, size));
    begin += size;
  });
}

}  // namespace epipe::layer
