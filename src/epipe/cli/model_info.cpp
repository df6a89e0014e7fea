#include "epipe/cli/model_info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "epipe/cli/command.h"
#include "epipe/model/costs.h"
#include "epipe/model/hf_folder.h"

namespace epipe::cli {
namespace {

using model::LayerCost;

constexpr std::int64_t kTokens = 128;

data::DataSpec spec_of(const model::Registry& models, const ModelInfoFlags& flags) {
  const bool text = models.takes_text(flags.model);
  data::DataSpec spec;
  spec.kind = text ? data::DataSpec::Kind::kText : data::DataSpec::Kind::kImages;
  spec.shape = flags.shape;
  spec.classes = flags.classes > 0 ? flags.classes : text ? 2 : 1000;
  spec.vocabulary = text && !model::hf_folder_of(flags.model) ? flags.vocabulary : 0;
  if (!spec.shape.empty()) return spec;
  spec.shape = {3, 224, 224};
  if (text) {
    spec.shape = {1};
    const std::int64_t positions = models.architecture(flags.model, spec).positions;
    spec.shape = {positions > 0 ? std::min(positions, kTokens) : kTokens};
  }
  return spec;
}

std::vector<LayerCost> costs_of(const model::Architecture& model, const data::DataSpec& spec) {
  std::vector<std::int64_t> shape = {1};
  shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
  const bool text = spec.kind == data::DataSpec::Kind::kText;
  layer::ForwardContext at;
  at.training = false;
  at.samples = {0};
  if (text) at.side = {torch::ones(shape)};
  return model::layer_costs(model, {text ? torch::zeros(shape, torch::kInt64) : torch::zeros(shape)}, at);
}

std::int64_t values_of(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t dim : shape) count *= dim;
  return count;
}

// Layers begin to end - 1.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
};

std::vector<Range> stages_of(const std::vector<std::string>& cuts, const model::Architecture& model) {
  std::vector<Range> stages = {{0, model.layers.size()}};
  for (const std::string& text : cuts) {
    const std::size_t cut = model::resolve_cut(text, model);
    if (cut <= stages.back().begin || cut >= model.layers.size()) {
      throw std::invalid_argument(fmt::format("expected cuts in ascending order between 1 and {}, got {}", model.layers.size() - 1, text));
    }
    stages.back().end = cut;
    stages.push_back({cut, model.layers.size()});
  }
  return stages;
}

LayerCost sum_of(const std::vector<LayerCost>& costs, const Range& range) {
  LayerCost sum;
  for (std::size_t i = range.begin; i < range.end; ++i) {
    sum.parameters += costs[i].parameters;
    sum.flops += costs[i].flops;
  }
  sum.shapes = costs[range.end - 1].shapes;
  return sum;
}

nlohmann::ordered_json json_of(const LayerCost& cost) {
  std::int64_t values = 0;
  for (const auto& shape : cost.shapes) values += values_of(shape);
  return {{"parameters", cost.parameters}, {"flops", cost.flops}, {"output_shapes", cost.shapes}, {"output_values", values}};
}

std::string shapes_text(const std::vector<std::vector<std::int64_t>>& shapes) {
  std::vector<std::string> all;
  for (const auto& shape : shapes) all.push_back(fmt::format("[{}]", fmt::join(shape, ", ")));
  return fmt::format("{}", fmt::join(all, " "));
}

void print_json(const std::string& name, const std::vector<LayerCost>& costs, const std::vector<Range>& stages) {
  nlohmann::ordered_json info = json_of(sum_of(costs, {0, costs.size()}));
  info["model"] = name;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    info["layers"].push_back(json_of(costs[i]));
    info["layers"].back().update({{"index", i}, {"name", costs[i].name}});
  }
  for (const Range& stage : stages) {
    info["stages"].push_back(json_of(sum_of(costs, stage)));
    info["stages"].back().update(
        {{"first", costs[stage.begin].name}, {"last", costs[stage.end - 1].name}, {"layers", stage.end - stage.begin}});
  }
  fmt::print("{}\n", info.dump());
}

void print_costs(const std::vector<LayerCost>& costs, const std::vector<Range>& stages) {
  const LayerCost all = sum_of(costs, {0, costs.size()});
  const auto share = [&](double flops) { return all.flops > 0 ? 100 * flops / all.flops : 0; };
  fmt::print("{:>5}  {:<24} {:>12} {:>12} {:>6}  {}\n", "layer", "name", "parameters", "MFLOPs", "%", "output of one sample");
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const LayerCost& c = costs[i];
    fmt::print("{:>5}  {:<24} {:>12} {:>12.2f} {:>6.1f}  {}\n", i, c.name, c.parameters, c.flops / 1e6, share(c.flops),
               shapes_text(c.shapes));
  }
  fmt::print("\n{:>5}  {:<24} {:>12} {:>12} {:>6}  {}\n", "stage", "layers", "parameters", "MFLOPs", "%", "what leaves it");
  for (std::size_t j = 0; j < stages.size(); ++j) {
    const LayerCost c = sum_of(costs, stages[j]);
    fmt::print("{:>5}  {:<24} {:>12} {:>12.2f} {:>6.1f}  {}\n", j, fmt::format("{} ... {}", stages[j].begin, stages[j].end - 1),
               c.parameters, c.flops / 1e6, share(c.flops), shapes_text(c.shapes));
  }
  fmt::print("{:>5}  {:<24} {:>12} {:>12.2f} {:>6.1f}\n", "", "all", all.parameters, all.flops / 1e6, 100.0);
}

}  // namespace

void add_model_info_flags(CLI::App& command, ModelInfoFlags& flags) {
  command.add_option("--model", flags.model, "By name; the program lists those it knows");
  command.add_option("--cuts", flags.cuts, "Layers (index or name) at which a stage begins")->delimiter(',');
  command
      .add_option("--shape", flags.shape,
                  "Of one sample; default: 3,224,224 for images; 128 tokens for text, or as many as the model has positions")
      ->delimiter(',')
      ->check(positive_number());
  command.add_option("--classes", flags.classes, "Default: 1000 for images and 2 for text")->check(positive_number());
  command.add_option("--vocabulary", flags.vocabulary, "Vocabulary size of a text model without its own")
      ->check(positive_number())
      ->capture_default_str();
}

void print_model_info(const model::Registry& models, const ModelInfoFlags& flags, bool json) {
  try {
    const data::DataSpec spec = spec_of(models, flags);
    const model::Architecture model = models.architecture(flags.model, spec);
    const auto stages = stages_of(flags.cuts, model);
    const auto costs = costs_of(model, spec);
    json ? print_json(model.name, costs, stages) : print_costs(costs, stages);
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

}  // namespace epipe::cli
