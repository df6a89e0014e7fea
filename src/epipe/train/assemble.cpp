#include "epipe/train/assemble.h"

#include <fmt/format.h>

#include <algorithm>

#include "epipe/base/file.h"
#include "epipe/model/hf_folder.h"
#include "epipe/train/adaptation.h"
#include "epipe/train/make_plan.h"
#include "epipe/train/results.h"
#include "epipe/train/reuse.h"

namespace epipe::train {
namespace {

LocalWorkers local_workers(const TrainConfig& config, pipeline::Loss loss, AssembleOptions& options) {
  LocalWorkers own;
  own.loss = std::move(loss);
  if (options.connector != nullptr) own.workers = {0};
  for (const std::string& device : config.devices) own.devices.push_back(device_of(device, config.local_rank));
  own.tracer = options.tracer;
  if (resizes_on_device(config)) own.input_edge = config.image_size;
  own.codec_threads = config.codec_threads;
  own.graphs = config.graphs;
  own.observer = std::move(options.observer);
  own.replicas = std::move(options.replicas);
  own.bucket_bytes = static_cast<std::size_t>(config.bucket) << 10U;
  if (config.reuse_activations) own.reuse_key = reuse_key(config.run_dir);
  return own;
}

LrSchedule lr_schedule(const TrainConfig& config, const Batches& batches) {
  LrSchedule lr;
  lr.kind = parse_lr_schedule(config.lr_schedule);
  lr.base = config.lr;
  lr.power = config.lr_power;
  lr.warmup_steps = config.warmup;
  lr.total_steps = static_cast<std::int64_t>(batches.all_steps());
  return lr;
}

std::vector<session::Parameter> parameter_order(const model::Architecture& architecture) {
  std::vector<session::Parameter> all;
  for (std::size_t l = 0; l < architecture.layers.size(); ++l) {
    const auto layer = architecture.layers[l].make();
    for (const auto& item : layer->named_parameters()) all.push_back({layer->full_name(item.key()), l});
  }
  return all;
}

// Names, shapes and types of every layer's weights, without their values.
session::LayerWeights expected_weights(const model::Architecture& architecture) {
  std::vector<model::NamedTensors> expected;
  for (const model::LayerMaker& maker : architecture.layers) {
    const auto layer = maker.make();
    const auto trained = session::weights_of(*layer, /*trained_only=*/true);
    auto& of_layer = expected.emplace_back(session::weights_of(*layer));
    for (auto& [name, tensor] : of_layer) {
      tensor = torch::empty(tensor.sizes(), torch::TensorOptions(tensor.scalar_type()).device(torch::kMeta));
      tensor.set_requires_grad(trained.contains(name));
    }
  }
  return [expected = std::move(expected)](std::size_t layer) { return expected.at(layer); };
}

// `fresh` makes the architecture anew: the layers of one that came as a whole are trained.
std::function<session::LayerWeights()> weights_source(std::function<model::Architecture()> fresh, std::uint64_t seed,
                                                      const AssembleOptions& options) {
  const auto new_parts = options.weights_are_whole ? model::NewParts::kNone : model::NewParts::kHeadAndCodec;
  return [fresh = std::move(fresh), seed, new_parts, files = options.weights, note = options.note]() -> session::LayerWeights {
    const auto weights = std::make_shared<InitialWeights>(fresh(), seed, files, new_parts);  // shared with copies of the function
    for (const std::string& text : weights->notes()) note(text);
    return [weights](std::size_t layer) { return weights->of_layer(layer); };
  };
}

session::CoordinatorConfig coordinator_config(const TrainConfig& config, const AssembleOptions& options, const Resolved& run, int replica) {
  session::CoordinatorConfig coordinator;
  coordinator.checkpoints = config.run_dir + "/checkpoints";
  const int workers = schedule::Placement{run.plan.place}.workers();
  if (replica > 0) coordinator.checkpoints += fmt::format("/worker-{}", replica * workers);
  if (options.connector != nullptr) coordinator.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(config.timeout * 1000));
  coordinator.resume = config.resume;
  coordinator.clip = config.clip;
  if (config.clip > 0) coordinator.parameter_order = parameter_order(run.architecture);
  coordinator.was_over = has_result(config.run_dir, run.plan);
  coordinator.note = options.note;
  return coordinator;
}

// `steps`: of the whole run.
AutoRatesConfig auto_rates_config(const TrainConfig& config, const pipeline::PipelineConfig& pipeline, const data::DataSpec& data,
                                  std::int64_t steps) {
  AutoRatesConfig rates;
  rates.audited = audited_cuts(pipeline, config.audit);
  rates.cuts = pipeline.cuts.size();
  rates.harm = config.harm;
  rates.loss_added = config.loss_added;
  rates.log_likelihood = config.loss == "auto" && !data.regression;
  rates.steps = static_cast<double>(steps);
  rates.share = config.audit_share;
  rates.batch = config.batch;
  rates.batch_here = config.batch / config.replicas;
  rates.reuses = config.reuse_activations;
  const bool none = rates.audited.empty();
  if (config.audit && none) {
    throw std::invalid_argument(
        "--audit looks at codecs of a rate, such as dct:1, between workers; there are none: say --codec and --place");
  }
  return rates;
}

// The last batch of an epoch may have fewer samples than there are chunks.
int chunks_for(const Plan& plan, const layer::Batch& batch) { return static_cast<int>(std::min<std::int64_t>(plan.chunks, batch.size())); }

}  // namespace

WeightsFiles files_of(const TrainConfig& config) {
  WeightsFiles files{config.weights, config.adapter};
  const auto folder = model::hf_folder_of(config.model);
  if (files.weights.empty() && folder && model::has_hf_weights(*folder)) files.weights = *folder;
  if (files.weights.empty() && !files.adapter.empty()) {
    throw std::invalid_argument("--adapter adds to weights; give --weights, or a model hf:DIR that has some");
  }
  return files;
}

session::NamedTensors ClientState::state() const {
  session::NamedTensors all = harm_.state();
  all.merge(link_.state());
  return all;
}

void ClientState::set_state(const session::NamedTensors& state) {
  harm_.set_state(state);
  link_.set_state(state);
}

pipeline::StepResult RunParts::forward_backward(const data::LoadedBatch& loaded, bool measure_error, const pipeline::Rates* rates) {
  pipeline::StepId id{loaded.epoch, loaded.step, chunks_for(plan, loaded.batch), measure_error, loaded.terms};
  id.rates = rates != nullptr ? *rates : rates_at(loaded.step);
  return coordinator->forward_backward(loaded.batch, id, lr.at(static_cast<std::int64_t>(loaded.step)));
}

pipeline::StepResult RunParts::overlapped_step(const data::LoadedBatch* loaded, bool measure_error) {
  if (loaded == nullptr) return coordinator->overlapped_step(nullptr, {});
  return coordinator->overlapped_step(&loaded->batch,
                                      {loaded->epoch, loaded->step, chunks_for(plan, loaded->batch), measure_error, loaded->terms});
}

pipeline::StepResult RunParts::evaluate(const data::LoadedBatch& loaded, std::uint64_t epoch, std::uint64_t step,
                                        const pipeline::Rates* rates) {
  pipeline::StepId id{epoch, step, chunks_for(plan, loaded.batch)};
  id.rates = rates != nullptr ? *rates : rates_at(step);
  return coordinator->evaluate(loaded.batch, id);
}

RunParts assemble(const Registry& registry, const TrainConfig& config, AssembleOptions options) {
  if (!options.note) options.note = [](const std::string&) {};
  const int replica = options.replicas ? options.replicas->rank() : 0;
  const auto kind = registry.models.takes_text(config.model) ? data::DataSpec::Kind::kText : data::DataSpec::Kind::kImages;
  RunParts parts;
  parts.batches = std::make_unique<Batches>(registry, config, kind, replica);
  const data::DataSpec spec = parts.batches->spec();
  const model::Adaptation adaptation = adaptation_of(config, registry.models.architecture(config.model, spec, config.seed));
  const auto architecture = [&registry, model = config.model, spec, seed = config.seed, adaptation] {
    return make_architecture(registry, model, spec, seed, adaptation);
  };
  {
    const model::Architecture looked_at = architecture();  // its own: a BatchNorm that was traced in training mode counts even a look
    parts.plan = make_plan(registry, config, looked_at, *parts.batches);
    if (config.reuse_activations) require_constant_front(config, parts.plan, looked_at, parts.batches->training_data());
    for (const std::size_t cut : parts.plan.cuts)
      parts.cut_names.push_back(cut < looked_at.layers.size() ? looked_at.layers[cut].name : "");
    for (const std::string& note : parts.batches->notes()) options.note(note);
    for (const std::string& note : looked_at.notes) options.note(note);
    parts.adapter_task = adapter_task(config, looked_at, parts.plan.data);
  }
  for (const auto& codec : parts.plan.codecs) parts.codec_names.push_back({codec.forward, codec.backward});
  parts.lr = lr_schedule(config, *parts.batches);
  const auto resolved = [architecture, plan = parts.plan] { return resolve(plan, architecture(), architecture); };
  const Resolved run = resolved();
  auto coordinator = coordinator_config(config, options, run, replica);
  if (options.connector != nullptr) coordinator.expected_weights = expected_weights(run.architecture);
  coordinator.spec = to_json(parts.plan);
  coordinator.initial_weights = weights_source([resolved] { return resolved().architecture; }, config.seed, options);
  auto local = make_local_trainer(run, local_workers(config, registry.losses.find(config.loss, parts.plan.data), options));
  parts.auto_rates = std::make_unique<AutoRates>(auto_rates_config(config, local->pipeline_config(), spec, parts.lr.total_steps));
  // A run that is resumed has its record in its checkpoint.
  parts.rate_record = std::make_unique<RateRecord>(parts.plan.cuts.size(), config.resume ? "" : config.rate_changes);
  parts.state = std::make_unique<ClientState>(*parts.auto_rates, *parts.rate_record);
  if (replica == 0) coordinator.own_state = parts.state.get();
  parts.coordinator = std::make_unique<session::Coordinator>(std::move(local), options.connector, std::move(coordinator));
  return parts;
}

}  // namespace epipe::train
