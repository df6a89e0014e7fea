#include "epipe/train/make_plan.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "epipe/model/costs.h"
#include "epipe/model/learned_codec.h"
#include "epipe/train/adaptation.h"
#include "epipe/train/first_samples.h"
#include "epipe/train/schedule_costs.h"

namespace epipe::train {
namespace {

std::vector<std::size_t> choose_cuts(const TrainConfig& config, const model::Architecture& architecture, const Batches& batches) {
  std::vector<std::size_t> cuts;
  for (const std::string& cut : config.cuts) cuts.push_back(model::resolve_cut(cut, architecture));
  if (!cuts.empty()) return cuts;
  const bool measured = config.balance == "measured";
  const std::int64_t micro_batch = std::min(batches.training_data().size(), config.batch / config.chunks);
  FirstSamples sample = first_samples(config, batches, measured ? micro_batch : 1);
  const auto stages = static_cast<int>(config.place.size());
  if (!measured) return model::balanced_cuts(architecture, sample.batch.inputs, sample.at, stages);
  sample.at.training = true;
  at::set_num_threads(config.threads);
  return model::measured_cuts(architecture, sample.batch.inputs, sample.at, stages);
}

void check_language_model(const TrainConfig& config, const model::Architecture& architecture, const layer::Tensors& x) {
  if (x.size() == 2 && x[0].dim() == 3) return;
  throw std::invalid_argument(fmt::format("{} is text whose next tokens are to be predicted, which {} does not; use hf:DIR with a decoder",
                                          config.data, architecture.name));
}

// A model that came as it is may not fit the data, and more outputs than classes would train without a word.
void check_outputs(const TrainConfig& config, const model::Architecture& architecture, const Batches& batches) {
  const data::DataSpec spec = batches.spec();
  const FirstSamples sample = first_samples(config, batches, 1);
  layer::Tensors x;
  bool trainable = false;
  try {
    x = model::forward_layer_by_layer(architecture, sample.batch.inputs, sample.at,
                                      [&](const layer::Layer& layer, const auto&, const auto&) {
                                        for (const auto& parameter : layer.parameters()) trainable = trainable || parameter.requires_grad();
                                      });
  } catch (const std::invalid_argument&) {
    throw;
  } catch (const std::exception& error) {
    const auto* const with_backtrace = dynamic_cast<const c10::Error*>(&error);
    throw std::invalid_argument(fmt::format("{} fails on the first sample of {}, of shape [{}]; expected a model that takes it: {}",
                                            architecture.name, config.data, fmt::join(spec.shape, ", "),
                                            with_backtrace != nullptr ? with_backtrace->what_without_backtrace() : error.what()));
  }
  if (!trainable) {  // such as a TorchScript module that was frozen: it would run all its epochs and stay as it is
    throw std::invalid_argument(
        fmt::format("expected weights to train in {}, got none; {}", architecture.name,
                    config.freeze.empty() ? "save the module before torch.jit.freeze" : "leave a layer out of --freeze"));
  }
  if (spec.next_token) return check_language_model(config, architecture, x);
  const std::vector<std::int64_t> logits = {1, spec.classes};
  const auto fits = [&](const torch::Tensor& y) {
    return y.is_floating_point() && (spec.regression ? y.numel() == spec.classes : y.sizes() == torch::IntArrayRef(logits));
  };
  if (x.size() == 1 && fits(x[0])) return;
  std::vector<std::string> got;
  for (const auto& y : x) got.push_back(fmt::format("{} [{}]", c10::toString(y.scalar_type()), fmt::join(y.sizes(), ", ")));
  throw std::invalid_argument(fmt::format(
      "expected one tensor Float [1, {}] from {} for one sample, as {} has {} {}; got {}: change the last layer, or the data", spec.classes,
      architecture.name, config.data, spec.classes, spec.regression ? "values per sample" : "classes", fmt::join(got, ", ")));
}

// Layers that share weights are run by one worker.
void check_shared(const model::Architecture& architecture, const std::vector<int>& place) {
  if (!architecture.share || place.front() == place.back()) return;
  throw std::invalid_argument(fmt::format(
      "the first and the last layer of {} share a matrix (tie_word_embeddings), so one worker has both; got --place {}, expected "
      "one that ends as it begins, such as 0,1,0",
      architecture.name, fmt::join(place, ",")));
}

std::vector<pipeline::CutCodecs> choose_codecs(const TrainConfig& config, std::size_t cuts) {
  pipeline::CutCodecs everywhere{config.codec_forward.empty() ? config.codec : config.codec_forward,
                                 config.codec_backward.empty() ? config.codec : config.codec_backward};
  std::vector<pipeline::CutCodecs> codecs(cuts, everywhere);
  for (const CodecAt& at : config.codec_at) {
    if (at.cut >= cuts) throw std::invalid_argument(fmt::format("--codec-at names cut {}, but there are {} cuts, from 0", at.cut, cuts));
    (at.forward ? codecs[at.cut].forward : codecs[at.cut].backward) = at.spec;
  }
  return codecs;
}

// What only the client knows of, and the plan before learned codecs become layers; pipeline/checked.cpp has the rest.
void check_delay(const TrainConfig& config, const Plan& plan) {
  if (config.delay == 0) return;
  const auto refuse = [](std::string_view what) {
    throw std::invalid_argument(fmt::format("--delay 1 does not go with {}; leave one of the two out", what));
  };
  if (config.clip > 0) refuse("--clip, for which all stages wait for one another");
  if (config.replicas > 1) refuse("--replicas");
  if (config.reuse_activations) refuse("--reuse-activations");
  if (config.audit) refuse("--audit, which runs between two steps");
  if (config.follow_link || !config.rate_changes.empty()) refuse("--follow-link and --rate-changes, which change bits between two steps");
  if (!config.in_flight.empty()) refuse("--in-flight: every micro-batch of two steps may be in flight");
  for (const pipeline::CutCodecs& codecs : plan.codecs) {
    for (const std::string& spec : {codecs.forward, codecs.backward}) {
      if (spec == "auto") refuse("the codec auto without a number, whose audits run between two steps: say bits per value, as in auto:2");
      if (model::split_learned(spec).learned) refuse(fmt::format("the learned codec {}, whose rank changes with a commit", spec));
    }
  }
}

// A server knows models by name; a file's name would tell it about this machine and nothing else.
void check_portable(const Registry& registry, const TrainConfig& config, const std::string& model) {
  if (config.connect.empty() || registry.models.is_portable(model)) return;
  throw std::invalid_argument(
      fmt::format("{} cannot be trained with --connect: servers build models by name and open no files", config.model));
}

}  // namespace

Plan make_plan(const Registry& registry, const TrainConfig& config, const model::Architecture& architecture, const Batches& batches) {
  check_outputs(config, architecture, batches);
  Plan plan;
  static_cast<SharedSettings&>(plan) = config;
  // A TorchScript file goes by its hash where others must find their own copy of it.
  const bool own_file = config.model.starts_with("torchscript:") && config.connect.empty();
  plan.model = own_file ? config.model : registry.models.portable_name(config.model);
  check_portable(registry, config, plan.model);
  plan.data = batches.spec();
  plan.seed = worker_seed(config.seed);
  plan.cuts = choose_cuts(config, architecture, batches);
  check_shared(architecture, plan.place);
  plan.frozen = layers_named("--freeze", config.freeze, architecture);
  plan.lora = whole_lora(config, architecture);
  plan.first_trained = model::first_trained(architecture);
  plan.codecs = choose_codecs(config, plan.cuts.size());
  plan.loss_scaling = config.loss_scaling == "on" || (config.loss_scaling == "auto" && config.precision == "fp16");
  plan.delay = config.delay;
  plan.costs = parse_costs(config.schedule_costs, static_cast<int>(plan.place.size()));
  plan.in_flight = resolve_in_flight(config.in_flight, plan);
  check_delay(config, plan);
  plan.client = texts_of(config, {Scope::kClient});
  return plan;
}

}  // namespace epipe::train
