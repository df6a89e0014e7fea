#include "epipe/cli/load_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "epipe/cli/command.h"
#include "epipe/model/adaptation.h"
#include "epipe/model/adapter.h"
#include "epipe/model/hf_folder.h"
#include "epipe/model/weights.h"

namespace epipe::cli {
namespace {

std::string weights_of(const LoadedModel& named) {
  return named.weights.empty() ? model::hf_folder_of(named.model).value_or("") : named.weights;
}

// Takes the number of classes from the weights; also tokens and positions if the model's sizes depend on the data.
data::DataSpec fitted(const model::Registry& models, data::DataSpec spec, const std::string& name, const model::NamedTensors& weights) {
  const auto rows = [&](const std::string& tensor, std::int64_t otherwise) {
    const auto found = weights.find(tensor);
    return found != weights.end() && found->second.dim() > 0 ? found->second.size(0) : otherwise;
  };
  if (name == "transformer") {
    spec.vocabulary = std::max(spec.vocabulary, rows("embeddings.token.weight", 0));
    spec.shape[0] = std::max(spec.shape[0], rows("embeddings.position.weight", 0));
  }
  const auto head = models.architecture(name, spec).layers.back().make();
  const auto parameters = head->named_parameters();
  if (!parameters.is_empty()) spec.classes = rows(head->full_name(parameters.back().key()), spec.classes);
  return spec;
}

model::Model read_model(const model::Registry& models, const LoadedModel& named, const data::DataSpec& data) {
  const std::string path = weights_of(named);
  if (path.empty() && named.adapter.empty()) return models.build_model(named.model, data);  // TorchScript brings its own
  auto weights = value_or_fail(model::read_weights(path));
  model::Adaptation adaptation;
  if (!named.adapter.empty()) {
    auto adapter = value_or_fail(model::read_adapter(named.adapter));
    adaptation.lora = adapter.config;
    for (auto& [name, tensor] : adapter.tensors) weights.insert_or_assign(name, tensor);
  }
  auto architecture = models.architecture(named.model, fitted(models, data, named.model, weights));
  model::adapt(architecture, adaptation);
  auto model = model::build(architecture);
  const auto loaded = model::load_weights(model, std::move(weights), model::NewParts::kNone);
  if (!loaded) throw Failure(fmt::format("{}: {}", path, loaded.error().message));
  for (const auto& note : loaded.value()) fmt::print(stderr, "note: {}\n", note);
  return model;
}

}  // namespace

model::Model load_model(const model::Registry& models, const LoadedModel& named, const data::DataSpec& data) {
  model::Model model = read_model(models, named, data);
  for (const auto& layer : model.layers) layer->to(torch::Device(named.device));
  return model;
}

}  // namespace epipe::cli
