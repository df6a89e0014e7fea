#include "epipe/train/learned_codecs.h"

#include <fmt/format.h>

#include <stdexcept>

#include "epipe/model/costs.h"
#include "epipe/model/learned_codec.h"

namespace epipe::train {
namespace {

// Takes the learned codec of a cut, if it has one; the rest of the chain is for the wire.
std::optional<model::LearnedCodec> take_learned(pipeline::CutCodecs& codecs, std::size_t cut) {
  const auto forward = model::split_learned(codecs.forward);
  const auto backward = model::split_learned(codecs.backward);
  if (backward.learned && backward.learned_text != forward.learned_text) {
    throw std::invalid_argument(
        fmt::format("cut {}: {} is layers around the cut, which both directions pass; give it with --codec, or with --codec-forward alone",
                    cut, backward.learned_text));
  }
  codecs = {forward.wire, backward.wire};
  return forward.learned;
}

// Shapes depend on the data's shape only, so any values will do.
std::vector<model::LayerCost> costs_of_one_sample(const model::Architecture& architecture, const data::DataSpec& data) {
  const bool text = data.kind == data::DataSpec::Kind::kText;
  std::vector<std::int64_t> shape = {1};
  shape.insert(shape.end(), data.shape.begin(), data.shape.end());
  layer::ForwardContext at;
  at.training = false;
  at.samples = {0};
  if (text) at.side = {torch::ones(shape)};
  return model::layer_costs(architecture, {torch::zeros(shape, text ? torch::kInt64 : torch::kFloat32)}, at);
}

}  // namespace

void insert_learned_codecs(model::Architecture& architecture, Plan& plan, const std::function<model::Architecture()>& look) {
  std::vector<std::optional<model::LearnedCodec>> learned;
  for (std::size_t cut = 0; cut < plan.codecs.size(); ++cut) learned.push_back(take_learned(plan.codecs[cut], cut));
  if (std::none_of(learned.begin(), learned.end(), [](const auto& codec) { return codec.has_value(); })) return;

  const auto costs = costs_of_one_sample(look ? look() : architecture, plan.data);
  std::size_t inserted = 0;
  for (std::size_t cut = 0; cut < learned.size(); ++cut) {
    const std::size_t first = plan.cuts[cut];  // as given, without the layers inserted so far
    plan.cuts[cut] += inserted;
    if (!learned[cut] || first == 0 || first > costs.size()) continue;
    const auto& shapes = costs[first - 1].shapes;
    if (shapes.size() != 1) {
      throw std::invalid_argument(fmt::format("cut {} carries {} tensors; learned codecs take cuts with one", cut, shapes.size()));
    }
    try {
      plan.cuts[cut] = model::insert_learned_codec(architecture, plan.cuts[cut], *learned[cut], shapes[0]);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(fmt::format("cut {}: {}", cut, error.what()));
    }
    inserted += 2;
  }
}

}  // namespace epipe::train
