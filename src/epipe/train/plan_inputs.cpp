#include "epipe/train/plan_inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "epipe/base/median.h"
#include "epipe/base/memory.h"
#include "epipe/model/costs.h"
#include "epipe/planner/stage_costs.h"
#include "epipe/train/adaptation.h"
#include "epipe/train/codec_costs.h"
#include "epipe/train/cost_tables.h"
#include "epipe/train/local_setup.h"
#include "epipe/train/measure_server.h"
#include "epipe/train/schedule_costs.h"

namespace epipe::train {
namespace {

using planner::Inputs;
using LayerSeconds = std::vector<std::vector<double>>;  // by layer, at each size of a micro-batch
using planner::WorkerSpec;

constexpr double kGivenCarry = 2.5e-9;  // seconds of a core for a byte at each end, with TLS
constexpr double kGivenFrame = 4e-5;    // and for a message
constexpr int kBatchNormSamples = 8;    // fewer make its statistics noise
constexpr double kProbeSeconds = 3;     // on the link, at most
constexpr double kLeastProbeBytes = 2e5;

std::string gigaflops(double flops, double seconds) { return fmt::format("{:.3g} GFLOP/s", seconds > 0 ? flops / seconds / 1e9 : 0); }
std::string megabits(double bytes_per_second) { return fmt::format("{:.4g} Mbit/s", bytes_per_second * 8 / 1e6); }

double flops_of(const Inputs& inputs) {
  double flops = 0;
  for (const planner::Layer& layer : inputs.layers) flops += 3 * layer.flops;  // a backward is two forwards
  return flops;
}

// Of one more sample.
double sample_seconds(const planner::Worker& worker) {
  double first = 0;
  double last = 0;
  for (const auto* const all : {&worker.forward, &worker.backward}) {
    for (const auto& layer : *all) first += layer.front(), last += layer.back();
  }
  const double slope = worker.sizes.size() > 1 ? (last - first) / (worker.sizes.back() - worker.sizes.front()) : 0;
  return slope > 0 ? slope : last / std::max(1.0, worker.sizes.back());
}

// Layers take as they do here, in the proportion in which the server took longer or shorter with a part of them.
LayerSeconds scaled(const DeviceTable& table, const LayerSeconds& here, const ProbePart& part, double samples, double there) {
  const double own = planner::at_size(table.sizes, samples, [&](std::size_t size) {
    double seconds = 0;
    for (std::size_t l = part.begin; l < part.end; ++l) seconds += here[l][size];
    return seconds;
  });
  LayerSeconds result = here;
  for (auto& layer : result) {
    for (double& seconds : layer) seconds *= own > 0 ? there / own : 1;
  }
  return result;
}

// A megabyte of values, of the median boundary.
std::string codec_text(const planner::CodecCosts& costs) {
  constexpr double kValues = 1 << 18;
  const auto nanoseconds = [&](planner::Line planner::FrameCosts::*line) {
    std::vector<double> all;
    for (const auto* const frames : {&costs.forward, &costs.backward}) {
      for (const planner::FrameCosts& frame : *frames) all.push_back((frame.*line).of(kValues) / kValues);
    }
    return 1e9 * median(std::move(all));
  };
  return fmt::format("{:.3g} bits a value, {:.3g} ns to encode and {:.3g} ns to decode it", costs.bits,
                     nanoseconds(&planner::FrameCosts::encode), nanoseconds(&planner::FrameCosts::decode));
}

int in_flight_of(const std::string& text) {
  int number = 0;
  const auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status == std::errc() && stop == text.data() + text.size() && number >= 1 && number <= schedule::kMaxChunks) return number;
  throw std::invalid_argument(fmt::format("--in-flight: expected auto or a number from 1 to {}, got {}", schedule::kMaxChunks, text));
}

class InputsMaker {
 public:
  InputsMaker(const Registry& registry, const PlanRequest& request)
      : registry_(registry),
        request_(request),
        config_(request.config),
        batches_(registry, config_, registry.models.takes_text(config_.model) ? data::DataSpec::Kind::kText : data::DataSpec::Kind::kImages,
                 0),
        architecture_(adapted()) {}

  Inputs make() {
    inputs_.model = config_.model;
    inputs_.batch = static_cast<double>(config_.batch);
    inputs_.recompute = config_.recompute;
    base_ = static_cast<double>(resident_bytes());
    add_layers();
    measure_devices();
    add_optimizer();
    add_link();
    for (const WorkerSpec& spec : request_.workers) add_worker(spec);
    add_codecs();
    add_constraints();
    return std::move(inputs_);
  }

 private:
  model::Architecture adapted() const {
    const auto spec = batches_.spec();
    const auto adaptation = adaptation_of(config_, registry_.models.architecture(config_.model, spec, config_.seed));
    return make_architecture(registry_, config_.model, spec, config_.seed, adaptation);
  }

  void fact(const std::string& name, std::string value, std::string source) {
    inputs_.facts.push_back({name, std::move(value), std::move(source)});
  }

  void add_layers() {
    ModelTable table = model_table(architecture_, config_, batches_);
    inputs_.layers = std::move(table.layers);
    inputs_.first_trained = model::first_trained(architecture_);
    const int normalized = table.batch_norm ? kBatchNormSamples : 1;
    inputs_.constraints.least_samples = request_.least_samples > 0 ? request_.least_samples : normalized;
    const bool servers = std::any_of(request_.workers.begin(), request_.workers.end(), [](const auto& w) { return w.is_server(); });
    inputs_.ring = servers || request_.workers.front().name == "client" || architecture_.share;
    if (inputs_.ring) inputs_.layers.front().with_client = inputs_.layers.back().with_client = true;
    for (const std::size_t layer : layers_named("--keep", request_.keep, architecture_)) inputs_.layers[layer].with_client = true;
    fact("model", fmt::format("{} layers, {:.3g} MFLOPs a sample", inputs_.layers.size(), flops_of(inputs_) / 3e6), "looked at");
    fact("batch", fmt::format("{} samples, micro-batches of at least {}", config_.batch, inputs_.constraints.least_samples), "given");
  }

  // Every device of this machine whose speed is not given.
  void measure_devices() {
    for (const WorkerSpec& spec : request_.workers) {
      if (spec.flops || spec.is_server() || devices_.contains(spec.device)) continue;
      measure_device(spec.device);
    }
    const auto unknown = [](const WorkerSpec& spec) { return spec.is_server() && !spec.flops; };
    const bool server = std::any_of(request_.workers.begin(), request_.workers.end(), unknown);
    if (server && devices_.empty()) measure_device(request_.workers.front().device);  // what the server is compared with
    for (const auto& [name, table] : devices_) {
      for (std::size_t l = 0; l < inputs_.layers.size(); ++l) inputs_.layers[l].kept_bytes = table.kept_bytes[l];
    }
  }

  void measure_device(const std::string& device) {
    request_.note(fmt::format("measuring {} on {}", config_.model, device));
    const int least = inputs_.constraints.least_samples;
    devices_.emplace(device, device_table(registry_, architecture_, config_, batches_, device_of(device, 0), least));
  }

  void add_optimizer() {
    const OptimizerConfig optimizer = optimizer_config(config_);
    inputs_.state_bytes = state_bytes(optimizer);
    update_ = update_seconds(optimizer);
    accumulate_ = accumulate_seconds();
    inputs_.load_seconds = load_seconds(batches_, std::min<std::int64_t>(config_.batch, 16));
    fact("data", fmt::format("{:.3g} ms a sample", 1e3 * inputs_.load_seconds), "measured");
  }

  // The first server stands for all of them.
  void add_link() {
    const auto server = std::find_if(request_.workers.begin(), request_.workers.end(), [](const auto& w) { return w.is_server(); });
    const planner::LinkSpec& given = request_.link;
    const bool whole = given.up && given.down && given.delay;
    const bool any = given.up || given.down || given.delay;
    if (server == request_.workers.end() && !any) return fact("link", "within this machine", "assumed free");
    std::optional<planner::Link> measured;
    if (!whole && server != request_.workers.end()) {
      request_.note("measuring the link to " + server->address);
      measured = measure_link(dial(*server));
    }
    inputs_.link = measured.value_or(planner::Link{.carry = kGivenCarry, .frame = kGivenFrame, .server_ends = kServerEnds});
    inputs_.link.up = rate("up", given.up, measured ? &measured->up : nullptr);
    inputs_.link.down = rate("down", given.down, measured ? &measured->down : nullptr);
    inputs_.link.delay = given.delay.value_or(measured ? measured->delay : 0);
    fact("delay", fmt::format("{:.3g} ms one way", 1e3 * inputs_.link.delay), given.delay ? "given" : measured ? "measured" : "assumed");
    const planner::Link& link = inputs_.link;
    fact("messages", fmt::format("{:.3g} us and {:.3g} ns a byte of a core here, {:g} times that at a server", 1e6 * link.frame,
                                 1e9 * link.carry, link.server_ends),
         measured ? "measured" : "assumed");
  }

  double rate(const std::string& name, const std::optional<double>& bits, const double* measured) {
    if (!bits && measured == nullptr) {
      throw std::invalid_argument(fmt::format("--link: the rate {} is missing, such as {}=10M", name, name));
    }
    const double bytes = bits ? planner::payload_rate(*bits) : *measured;
    fact(name, fmt::format("{} of payload", megabits(bytes)), bits ? "given" : "measured");
    return bytes;
  }

  transport::ConnectConfig dial(const WorkerSpec& spec) const {
    transport::ConnectConfig there = request_.dial;
    there.address = spec.address;
    return there;
  }

  int machine_of(const WorkerSpec& spec) {
    if (!inputs_.cores.empty() && (!spec.is_server() || spec.here)) return 0;
    const double cores = spec.cores ? *spec.cores : spec.is_server() ? planner::kUnlimited : measured_cores();
    inputs_.cores.push_back(std::max(1.0, cores - (config_.threads - 1)));  // a worker's thread stands for all it uses inside an operator
    return static_cast<int>(inputs_.cores.size()) - 1;
  }

  void add_worker(const WorkerSpec& spec) {
    planner::Worker worker{spec.name};
    worker.machine = machine_of(spec);
    worker.base = base_;
    worker.update = update_;
    worker.accumulate = accumulate_;
    worker.memory = spec.memory.value_or(planner::kUnlimited);
    std::string source = "measured";
    if (spec.flops) {
      take(estimated_table(inputs_.layers, *spec.flops), worker);
      source = "given";
    } else if (spec.is_server()) {
      probe(spec, worker);
    } else {
      take(devices_.at(spec.device), worker);
    }
    std::string value = gigaflops(flops_of(inputs_), sample_seconds(worker));
    value += worker.machine == 0 && !inputs_.workers.empty() ? ", on the same machine" : "";
    const double cores = inputs_.cores[static_cast<std::size_t>(worker.machine)];
    value += cores < planner::kUnlimited ? fmt::format(", {:.3g} cores", cores) : "";
    value += spec.memory ? fmt::format(", {:.4g} GB", *spec.memory / 1e9) : "";
    fact(spec.name, value, source);
    inputs_.workers.push_back(std::move(worker));
  }

  void probe(const WorkerSpec& spec, planner::Worker& worker) {
    const double rate = std::min(inputs_.link.up, inputs_.link.down);
    const ProbePart part = choose_probe(inputs_.layers, std::max(kLeastProbeBytes, kProbeSeconds * std::min(rate, 1e8)));
    request_.note(fmt::format("measuring {} with layers {} to {}", spec.address, part.begin, part.end - 1));
    const ProbeTimes times = probe_server(registry_, config_, part, dial(spec));
    inputs_.step_seconds = std::max({inputs_.step_seconds, 0.0, times.around - update_ * trained_outside(part)});
    const DeviceTable& here = devices_.begin()->second;
    worker.sizes = here.sizes;
    worker.forward = scaled(here, here.forward, part, times.sizes.back(), times.forward.back());
    worker.backward = scaled(here, here.backward, part, times.sizes.back(), times.backward.back());
  }

  // Parameters that the client trains while the server has this part.
  double trained_outside(const ProbePart& part) const {
    double trained = 0;
    for (std::size_t l = 0; l < inputs_.layers.size(); ++l) trained += l < part.begin || l >= part.end ? inputs_.layers[l].trained : 0;
    return trained;
  }

  static void take(const DeviceTable& table, planner::Worker& worker) {
    worker.sizes = table.sizes;
    worker.forward = table.forward;
    worker.backward = table.backward;
  }

  std::size_t codec(const std::string& spec) {
    for (std::size_t i = 0; i < inputs_.codecs.size(); ++i) {
      if (inputs_.codecs[i].spec == spec) return i;
    }
    const bool chooses_rate = spec == "auto";
    const std::string priced = chooses_rate ? fmt::format("auto:{}", request_.bits) : spec;
    planner::CodecCosts costs = codec_costs(priced, boundaries(), config_.codec_threads);
    costs.spec = spec;
    if (costs.lossy()) {
      fact("codec " + spec, codec_text(costs), chooses_rate ? "bits assumed, times measured" : "measured");
    }
    inputs_.codecs.push_back(std::move(costs));
    return inputs_.codecs.size() - 1;
  }

  const std::vector<model::BoundaryTensors>& boundaries() {
    if (boundaries_.empty()) {
      request_.note("measuring codecs");
      boundaries_ = boundaries_of(registry_, architecture_, config_, batches_, inputs_.layers);
    }
    return boundaries_;
  }

  void add_codecs() {
    const auto given = [&](const char* name) { return request_.given.contains(name); };
    if (given("harm")) inputs_.harm = config_.harm;
    planner::Constraints& only = inputs_.constraints;
    if (given("codec") || given("codec_forward") || given("codec_backward")) {
      only.forward_codecs = {codec(config_.codec_forward.empty() ? config_.codec : config_.codec_forward)};
      only.backward_codecs = {codec(config_.codec_backward.empty() ? config_.codec : config_.codec_backward)};
    } else if (request_.followed_bits.empty()) {
      codec("none");
      codec(given("harm") ? "auto" : fmt::format("auto:{}", request_.bits));
    } else {
      for (const double bits : request_.followed_bits) {
        if (bits >= request_.bits) only.forward_codecs.push_back(codec(fmt::format("auto:{}", bits)));
      }
      only.backward_codecs = only.forward_codecs;
    }
    for (const double bits : request_.followed_bits) codec(fmt::format("auto:{}", bits));
    if (given("harm")) codec("auto");
    for (const CodecAt& at : config_.codec_at) {
      only.codec_at.push_back({at.cut, at.forward ? schedule::Direction::kForward : schedule::Direction::kBackward, codec(at.spec)});
    }
  }

  void add_constraints() {
    planner::Constraints& only = inputs_.constraints;
    if (request_.given.contains("cuts")) {
      only.cuts.emplace();
      for (const std::string& cut : config_.cuts) only.cuts->push_back(model::resolve_cut(cut, architecture_));
    }
    if (request_.given.contains("place")) only.place = config_.place;
    if (request_.given.contains("schedule")) only.schedule = config_.schedule;
    if (request_.given.contains("chunks")) only.chunks = config_.chunks;
    if (config_.in_flight != "auto" && !config_.in_flight.empty()) only.in_flight = in_flight_of(config_.in_flight);
  }

  const Registry& registry_;
  const PlanRequest& request_;
  const TrainConfig& config_;
  Batches batches_;
  model::Architecture architecture_;
  Inputs inputs_;
  std::map<std::string, DeviceTable> devices_;  // measured, by name
  std::vector<model::BoundaryTensors> boundaries_;
  double base_ = 0;
  double update_ = 0;
  double accumulate_ = 0;
};

}  // namespace

Inputs plan_inputs(const Registry& registry, const PlanRequest& request) { return InputsMaker(registry, request).make(); }

TrainConfig with_choice(TrainConfig config, const Inputs& inputs, const planner::Choice& choice) {
  config.cuts.clear();
  for (const std::size_t cut : choice.cuts) config.cuts.push_back(inputs.layers[cut].name);
  config.place = choice.place;
  config.chunks = choice.chunks;
  config.schedule = choice.schedule;
  if (config.in_flight != kAutoInFlight) {
    config.in_flight = choice.in_flight > 0 ? fmt::to_string(choice.in_flight) : "";
    config.schedule_costs = costs_text(choice.costs);
  }
  config.codec_forward.clear();
  config.codec_backward.clear();
  config.codec_at.clear();
  if (inputs.harm > 0) config.harm = inputs.harm;
  if (choice.cuts.empty()) {
    config.codec = "none";
    return config;
  }
  const auto spec = [&](std::size_t codec) { return inputs.codecs[codec].spec; };
  config.codec = spec(choice.codecs.front().forward);
  for (std::size_t cut = 0; cut < choice.codecs.size(); ++cut) {
    const auto& [forward, backward] = choice.codecs[cut];
    if (spec(forward) != config.codec) config.codec_at.push_back({cut, true, spec(forward)});
    if (spec(backward) != config.codec) config.codec_at.push_back({cut, false, spec(backward)});
  }
  return config;
}

}  // namespace epipe::train
