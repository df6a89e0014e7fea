#include "epipe/train/run.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/cuda.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "epipe/base/file.h"
#include "epipe/data/open.h"
#include "epipe/data/subset.h"
#include "epipe/model/costs.h"
#include "epipe/model/portable.h"
#include "epipe/train/learned_codecs.h"
#include "epipe/train/task_metrics.h"

namespace epipe::train {
namespace {

using pipeline::StepResult;

// Images that all have one size can be enlarged by the first stage, which costs a device nothing and a loader most of its time.
bool resizes_on_device(const TrainConfig& config) {
  if (config.resize_on != "device") return false;
  if (!config.data.starts_with("cifar")) {
    throw std::invalid_argument(fmt::format("--resize-on device takes images that have one size (cifar10, cifar100), got {}", config.data));
  }
  return config.image_size != 0;
}

// The data as the model sees it.
data::DataSpec seen_by_model(const TrainConfig& config, data::DataSpec spec) {
  if (resizes_on_device(config)) spec.shape = {spec.shape.at(0), config.image_size, config.image_size};
  return spec;
}

data::Splits open_data(const TrainConfig& config) {
  const bool text = model::takes_text(config.model);
  auto splits =
      data::open_data({config.data, resizes_on_device(config) ? 0 : config.image_size, config.augment, config.max_length, config.bpe},
                      text ? data::DataSpec::Kind::kText : data::DataSpec::Kind::kImages, config.seed);
  return data::part_of(std::move(splits), config.data_part);
}

// The first samples as the model sees them, and where they are.
struct Sample {
  layer::Batch batch;
  layer::ForwardContext at;
};

Sample first_samples(const TrainConfig& config, const data::Dataset& data, std::int64_t count) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  Sample sample{data.batch(ids), {}};
  if (resizes_on_device(config)) sample.batch.inputs[0] = torch::zeros({sample.batch.size(), 3, config.image_size, config.image_size});
  sample.at.training = false;
  sample.at.samples = sample.batch.samples;
  sample.at.side = sample.batch.side;
  return sample;
}

std::vector<std::size_t> choose_cuts(const TrainConfig& config, const model::Model& model, const data::Dataset& data) {
  std::vector<std::size_t> cuts;
  for (const std::string& cut : config.cuts) cuts.push_back(model::resolve_cut(cut, model));
  if (!cuts.empty()) return cuts;
  const bool measured = config.balance == "measured";
  Sample sample = first_samples(config, data, measured ? std::min(data.size(), config.batch / config.chunks) : 1);
  const auto stages = static_cast<int>(config.place.size());
  if (!measured) return model::balanced_cuts(model, sample.batch.inputs, sample.at, stages);
  sample.at.training = true;
  at::set_num_threads(config.threads);
  return model::measured_cuts(model, sample.batch.inputs, sample.at, stages);
}

// A model that came as it is may not fit the data, and more outputs than classes would train without a word.
void check_outputs(const TrainConfig& config, const model::Model& model, const data::Dataset& data) {
  const auto spec = seen_by_model(config, data.spec());
  const Sample sample = first_samples(config, data, 1);
  layer::Tensors x = sample.batch.inputs;
  try {
    const torch::NoGradGuard no_grad;
    for (const auto& layer : model.layers) x = layer->forward(x, sample.at);
  } catch (const std::invalid_argument&) {
    throw;
  } catch (const std::exception& error) {
    const auto* const with_backtrace = dynamic_cast<const c10::Error*>(&error);
    throw std::invalid_argument(fmt::format("{} fails on the first sample of {}, of shape [{}]; expected a model that takes it: {}",
                                            model.name, config.data, fmt::join(spec.shape, ", "),
                                            with_backtrace != nullptr ? with_backtrace->what_without_backtrace() : error.what()));
  }
  const std::vector<std::int64_t> logits = {1, spec.classes};
  const auto fits = [&](const torch::Tensor& y) {
    return y.is_floating_point() && (spec.regression ? y.numel() == spec.classes : y.sizes() == torch::IntArrayRef(logits));
  };
  if (x.size() == 1 && fits(x[0])) return;
  std::vector<std::string> got;
  for (const auto& y : x) got.push_back(fmt::format("{} [{}]", c10::toString(y.scalar_type()), fmt::join(y.sizes(), ", ")));
  throw std::invalid_argument(fmt::format(
      "expected one tensor Float [1, {}] from {} for one sample, as {} has {} {}; got {}: change the last layer, or the data", spec.classes,
      model.name, config.data, spec.classes, spec.regression ? "values per sample" : "classes", fmt::join(got, ", ")));
}

// Such as a TorchScript module that was frozen: it would run all its epochs and stay as it is.
void check_trainable(const model::Model& model) {
  for (const auto& layer : model.layers) {
    for (const auto& parameter : layer->parameters()) {
      if (parameter.requires_grad()) return;
    }
  }
  throw std::invalid_argument(
      fmt::format("expected weights to train in {}, got none; save the module before torch.jit.freeze", model.name));
}

// Puts buffers back: a BatchNorm that was traced in training mode takes statistics even of a forward that only looks.
class KeptBuffers {
 public:
  explicit KeptBuffers(const model::Model& model) {
    for (const auto& layer : model.layers) {
      for (auto& buffer : layer->buffers()) kept_.emplace_back(buffer, buffer.clone());
    }
  }
  ~KeptBuffers() {
    const torch::NoGradGuard no_grad;
    for (auto& [buffer, value] : kept_) buffer.copy_(value);
  }
  KeptBuffers(const KeptBuffers&) = delete;
  KeptBuffers& operator=(const KeptBuffers&) = delete;

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> kept_;
};

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

// A server knows models by name; a file's name would tell it about this machine and nothing else.
void check_portable(const TrainConfig& config, const std::string& model) {
  if (config.connect.empty() || model::is_portable(model)) return;
  throw std::invalid_argument(
      fmt::format("{} cannot be trained with --connect: servers build models by name and open no files", config.model));
}

Plan make_plan(const TrainConfig& config, const model::Model& model, const data::Dataset& data) {
  Plan plan;
  static_cast<SharedSettings&>(plan) = config;
  plan.model = model::portable_name(config.model);
  check_portable(config, plan.model);
  plan.data = seen_by_model(config, data.spec());
  plan.seed = worker_seed(config.seed);
  plan.cuts = choose_cuts(config, model, data);
  plan.codecs = choose_codecs(config, plan.cuts.size());
  plan.loss_scaling = config.loss_scaling == "on" || (config.loss_scaling == "auto" && config.precision == "fp16");
  plan.client = texts_of(config, {Scope::kClient});
  return plan;
}

std::vector<std::string> parameter_order(const model::Model& model) {
  std::vector<std::string> names;
  for (const auto& layer : model.layers) {
    for (const auto& item : layer->named_parameters()) names.push_back(layer->full_name(item.key()));
  }
  return names;
}

}  // namespace

torch::Device device_of(const std::string& name, int local_rank) {
  const auto count = static_cast<int>(torch::cuda::device_count());
  return name == "cuda" && count > 0 ? torch::Device(torch::kCUDA, static_cast<torch::DeviceIndex>(local_rank % count))
                                     : torch::Device(name);
}

Run::Run(const TrainConfig& config, Tracer* tracer, PeerConnector* connector, std::unique_ptr<transport::Group> replicas,
         pipeline::TensorObserver tap)
    : config_(config),
      replica_(replicas ? replicas->rank() : 0),
      data_(open_data(config)),
      model_(model::make_model(config.model, seen_by_model(config, data_.train->spec()), config.seed)) {
  check_batch();
  check_trainable(model_);
  {
    const KeptBuffers kept(model_);
    check_outputs(config_, model_, *data_.train);
    plan_ = make_plan(config_, model_, *data_.train);
  }
  for (const auto& codec : plan_.codecs) codec_names_.push_back({codec.forward, codec.backward});
  for (const std::size_t cut : plan_.cuts) cut_names_.push_back(cut < model_.layers.size() ? model_.layers[cut]->name() : "");
  shared_plan_ = plan_;
  notes_ = data_.notes;
  notes_.insert(notes_.end(), model_.notes.begin(), model_.notes.end());
  insert_learned_codecs(model_, plan_, config_.seed);
  LocalWorkers here;
  if (connector != nullptr) here.workers = {0};
  for (const std::string& device : config_.devices) here.devices.push_back(device_of(device, config_.local_rank));
  here.tracer = tracer;
  if (resizes_on_device(config_)) here.input_edge = config_.image_size;
  here.tap = std::move(tap);
  here.replicas = std::move(replicas);
  here.bucket_bytes = static_cast<std::size_t>(config_.bucket) << 10U;
  local_ = std::make_unique<LocalTrainer>(plan_, model_, std::move(here));
  CoordinatorConfig coordinator;
  coordinator.checkpoints = config_.run_dir + "/checkpoints";
  if (replica_ > 0) coordinator.checkpoints += fmt::format("/worker-{}", replica_ * workers());
  if (connector != nullptr) coordinator.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(config_.timeout * 1000));
  coordinator.resume = config_.resume;
  coordinator.parameter_order = parameter_order(model_);
  coordinator.clip = config_.clip;
  const auto files = list_folder(config_.run_dir);
  coordinator.was_over = std::find(files.begin(), files.end(), "model.safetensors") != files.end();
  coordinator.note = [this](std::string note) { notes_.push_back(std::move(note)); };
  coordinator.shared_plan = to_json(shared_plan_);
  coordinator_ = std::make_unique<Coordinator>(plan_, *local_, connector, coordinator, [this] { return initial_model(); });
  lr_.kind = parse_lr_schedule(config_.lr_schedule);
  lr_.base = config_.lr;
  lr_.power = config_.lr_power;
  lr_.warmup_steps = config_.warmup;
  lr_.total_steps = static_cast<std::int64_t>(all_steps());
}

void Run::check_batch() const {
  if (config_.batch < config_.chunks) {
    throw std::invalid_argument(fmt::format("a batch of {} cannot be split into {} chunks", config_.batch, config_.chunks));
  }
  const std::int64_t least = config_.batch / config_.replicas;
  if (least >= config_.chunks) return;
  throw std::invalid_argument(
      fmt::format("a batch of {} leaves one of {} replicas {} samples, which cannot be split into {} chunks; use a "
                  "batch of at least {}, or fewer chunks or replicas",
                  config_.batch, config_.replicas, least, config_.chunks, config_.chunks * config_.replicas));
}

std::uint64_t Run::end_step() const {
  return config_.max_steps > 0 ? std::min(all_steps(), static_cast<std::uint64_t>(config_.max_steps)) : all_steps();
}

data::LoaderConfig Run::loader_config() const {
  return {config_.batch, config_.shuffle, config_.seed, 0, 0, config_.load_threads, replica_, config_.replicas};
}

std::unique_ptr<data::Loader> Run::training_batches(std::uint64_t first_step) const {
  data::LoaderConfig loader = loader_config();
  loader.first_step = first_step;
  loader.end_step = std::max(first_step, end_step());
  return std::make_unique<data::Loader>(*data_.train, loader);
}

std::unique_ptr<data::Loader> Run::validation_batches() const {
  data::LoaderConfig loader = loader_config();
  loader.shuffle = false;
  loader.end_step = validation_steps();
  return std::make_unique<data::Loader>(*data_.validation, loader);
}

void Run::begin_with(const NamedTensors& weights) {
  std::vector<int> all(static_cast<std::size_t>(workers()));
  std::iota(all.begin(), all.end(), 0);
  if (const auto loaded = model::load_into(weights, weights_of(model_, plan_, all)); !loaded) {
    throw std::invalid_argument(loaded.error().message);
  }
  coordinator_->start_over();
}

// The first time it is the model itself; when a run starts over, training has changed its layers.
model::Model Run::initial_model() {
  model::Model model = model_;
  if (std::exchange(started_, true)) {
    model = model::make_model(config_.model, seen_by_model(config_, data_.train->spec()), config_.seed);
    Plan plan = shared_plan_;
    insert_learned_codecs(model, plan, config_.seed);
  }
  if (!weights_file_.empty()) load_weights(model);
  return model;
}

void Run::load_weights(const model::Model& model) {
  auto file = model::read_weights(weights_file_);
  if (!file) throw std::runtime_error(file.error().message);
  auto notes = model::load_weights(model, std::move(file).value(), new_parts_);
  if (!notes) throw std::runtime_error(fmt::format("{}: {}", weights_file_, notes.error().message));
  notes_.insert(notes_.end(), notes.value().begin(), notes.value().end());
}

int Run::chunks_for(const layer::Batch& batch) const { return static_cast<int>(std::min<std::int64_t>(config_.chunks, batch.size())); }

StepResult Run::forward_backward(const data::LoadedBatch& loaded, bool measure_error) {
  return coordinator_->forward_backward(loaded.batch, {loaded.epoch, loaded.step, chunks_for(loaded.batch), measure_error, loaded.samples},
                                        lr(loaded.step));
}

StepResult Run::evaluate(const data::LoadedBatch& loaded, std::uint64_t epoch, std::uint64_t step) {
  return coordinator_->evaluate(loaded.batch, {epoch, step, chunks_for(loaded.batch)});
}

EpochResult Run::validate(std::uint64_t epoch, std::uint64_t step) {
  double loss = 0;
  double correct = 0;
  const auto size = static_cast<double>(data_.validation->size());
  const auto loader = validation_batches();
  TaskScore score(data_.validation->spec());
  for (std::uint64_t b = 0; b < validation_steps(); ++b) {
    const StepResult part = evaluate(loader->next(), epoch, step);
    loss += part.loss * static_cast<double>(part.samples);
    correct += part.correct;
    score.add(part.predictions, part.targets);
  }
  EpochResult result;
  result.epoch = epoch;
  result.val_loss = loss / size;
  result.val_accuracy = correct / size;
  result.val_metrics = score.metrics();
  return result;
}

}  // namespace epipe::train
