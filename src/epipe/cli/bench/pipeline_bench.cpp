// epipe bench pipeline: the speed-up by two workers, and the cost of the runtime
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "epipe/base/clock.h"
#include "epipe/base/median.h"
#include "epipe/cli/bench/benches.h"
#include "epipe/cli/bench/data_parallel.h"
#include "epipe/cli/bench/subject.h"
#include "epipe/cli/command.h"
#include "epipe/model/costs.h"
#include "epipe/pipeline/chunks.h"
#include "epipe/schedule/simulate.h"
#include "epipe/train/loss.h"
#include "epipe/transport/c10d/support.h"

namespace epipe::cli {
namespace {

using layer::Batch;
using pipeline::PipelineConfig;

struct PipelineBenchFlags {
  int chunks = 8;
  std::int64_t batch = 512;
  int rounds = 12;
  std::vector<std::string> models = {"cnn", "transformer"};
  bool json = false;
};

std::vector<std::size_t> even_cut(const Subject& subject, int chunks) {
  const Batch part = pipeline::slice(subject.batch, {0, subject.batch.size() / chunks});
  return model::measured_cuts(architecture_of(subject), part.inputs, context_of(part), 2);
}

struct SpeedUp {
  std::vector<std::size_t> cuts;
  double one_ms = 0;  // per step, one worker
  double two_ms = 0;
  double speed_up = 0;
  double bound = 0;         // on the speed-up, simulated from measured action times
  schedule::Costs costs{};  // those times, in seconds
};

using ActionSeconds = std::map<std::string, std::array<std::vector<double>, 2>>;  // by kind and stage

ActionSeconds measured_actions(const Subject& subject, PipelineConfig config, int rounds) {
  Tracer tracer(100'000);
  config.tracer = &tracer;
  Steps steps(subject, config);
  for (int round = 0; round < rounds; ++round) steps.time_one();
  ActionSeconds seconds;
  for (const auto& event : tracer.events()) {
    if (event.category != "backward" && event.category != "forward") continue;
    const std::string kind = event.name.substr(0, event.name.find(' '));  // "Bi 3 1"
    seconds[kind].at(static_cast<std::size_t>(event.name.back() - '0')).push_back(event.end - event.begin);
  }
  return seconds;
}

// The times of a stage's actions, from the same stages on one undisturbed worker. The times of a split backward are from the second
// stage, which runs beside the other worker; the first stage splits nothing.
schedule::Costs measured_costs(const Subject& subject, const PipelineConfig& config, int rounds) {
  schedule::Costs costs = schedule::equal_costs(2, 0, 0);
  PipelineConfig alone = config;
  alone.placement = {{0, 0}};
  alone.schedule = "gpipe";
  ActionSeconds seconds = measured_actions(subject, alone, rounds);
  for (std::size_t j = 0; j < 2; ++j) {
    costs.forward[j] = median(seconds["F"][j]);
    costs.backward[j] = median(seconds["B"][j]);
  }
  if (!schedule::find_generator(config.schedule).value().splits_backward) return costs;
  ActionSeconds split = measured_actions(subject, config, rounds);
  costs.backward_input = {costs.backward[0] / 2, median(split["Bi"][1])};
  costs.backward_weights = {costs.backward[0] / 2, median(split["Bw"][1])};
  return costs;
}

SpeedUp measure_speed_up(const Subject& subject, const PipelineBenchFlags& flags, const std::string& name) {
  SpeedUp result;
  result.cuts = even_cut(subject, flags.chunks);
  PipelineConfig one;
  one.chunks = flags.chunks;
  PipelineConfig two = one;
  two.cuts = result.cuts;
  two.schedule = name;
  result.costs = measured_costs(subject, two, 3);
  const auto schedule = schedule::generate(name, {{0, 1}}, flags.chunks);
  const auto timeline = schedule::simulate(schedule.value(), result.costs);
  result.bound = schedule::serial_time(flags.chunks, result.costs) / timeline.value().makespan;

  Steps alone(subject, one);
  Steps together(subject, two);
  std::vector<double> alone_seconds;
  std::vector<double> together_seconds;
  for (int round = 0; round < flags.rounds + 2; ++round) {  // alternating, so that both see the same machine
    const double a = alone.time_one();
    const double b = together.time_one();
    if (round < 2) continue;  // warm up
    alone_seconds.push_back(a);
    together_seconds.push_back(b);
  }
  result.one_ms = 1e3 * median(alone_seconds);
  result.two_ms = 1e3 * median(together_seconds);
  result.speed_up = result.one_ms / result.two_ms;
  return result;
}

// The same step as a plain LibTorch loop: forward through all layers, loss, backward.
double time_plain_step(const Batch& batch, const model::Model& model, const pipeline::Loss& loss) {
  const Stopwatch watch;
  for (const auto& layer : model.layers) {
    for (auto& parameter : layer->parameters()) parameter.mutable_grad() = torch::Tensor();
  }
  layer::Tensors x = batch.inputs;
  const auto at = context_of(batch);
  for (const auto& layer : model.layers) x = layer->forward(x, at);
  const auto result = loss(x, batch.targets);
  (result.sum / static_cast<double>(batch.size())).backward();
  volatile double value = result.sum.item<double>();
  (void)value;
  for (const auto& layer : model.layers) layer->commit_batch();
  return watch.seconds();
}

// The overhead of one stage and one chunk over the plain loop: the median of the paired ratios, minus 1.
double measure_overhead(const Subject& subject, const PipelineBenchFlags& flags) {
  Steps steps(subject, {});
  const auto model = model_of(subject);
  const auto loss = train::make_loss(subject.data);
  std::vector<double> ratios;
  for (int round = 0; round < 2 * flags.rounds + 2; ++round) {
    const double plain = time_plain_step(subject.batch, model, loss);
    const double ours = steps.time_one();
    if (round >= 2) ratios.push_back(ours / plain);
  }
  return median(ratios) - 1;
}

using ActionMs = std::vector<std::pair<std::string, double>>;  // by kind

// The times of the second stage, which splits its backward if the schedule does.
ActionMs action_ms(const schedule::Costs& costs) {
  ActionMs ms;
  for (const schedule::Kind kind : schedule::kKinds) {
    const bool measured =
        !(kind == schedule::Kind::kBackwardInput || kind == schedule::Kind::kBackwardWeights) || !costs.backward_input.empty();
    if (measured) ms.emplace_back(schedule::letters(kind), 1e3 * costs.of(kind, 1));
  }
  return ms;
}

std::string text_of(const ActionMs& ms) {
  std::vector<std::string> parts;
  for (const auto& [kind, value] : ms) parts.push_back(fmt::format("{} {:.2f}", kind, value));
  return fmt::format("{}", fmt::join(parts, ", "));
}

void report_speed_up(const Subject& subject, const std::string& name, const SpeedUp& s, bool json) {
  const double of_bound = s.speed_up / s.bound;
  const ActionMs ms = action_ms(s.costs);
  if (json) {
    const nlohmann::json line = {
        {"model", subject.name},     {"schedule", name},           {"cuts", s.cuts},
        {"one_worker_ms", s.one_ms}, {"two_workers_ms", s.two_ms}, {"speed_up", s.speed_up},
        {"bound", s.bound},          {"of_bound", of_bound},       {"action_ms", std::map<std::string, double>(ms.begin(), ms.end())}};
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print("{:<12} {:<6} one worker {:7.2f} ms, two {:7.2f} ms: speed-up {:.2f}, bound {:.2f}, {:.2f} of it; stage 1: {} ms\n",
               subject.name, name, s.one_ms, s.two_ms, s.speed_up, s.bound, of_bound, text_of(ms));
  }
  std::fflush(stdout);
}

void report_overhead(const Subject& subject, double overhead, bool json) {
  if (json) {
    fmt::print("{}\n", nlohmann::json{{"model", subject.name}, {"overhead_of_plain_loop", overhead}}.dump());
  } else {
    fmt::print("{:<12} one stage, one chunk: {:+.2f} % against a plain LibTorch loop\n", subject.name, 100 * overhead);
  }
  std::fflush(stdout);
}

void report_data_parallel(const Subject& subject, const DataParallel& d, bool json) {
  const double of_bound = d.bound_ms / d.two_ms;
  if (json) {
    const nlohmann::json line = {{"model", subject.name},
                                 {"replicas", 2},
                                 {"one_worker_ms", d.one_ms},
                                 {"two_replicas_ms", d.two_ms},
                                 {"speed_up", d.one_ms / d.two_ms},
                                 {"bound", d.one_ms / d.bound_ms},
                                 {"of_bound", of_bound},
                                 {"all_reduce_bytes", d.sent_bytes},
                                 {"all_reduce_wait_ms", d.wait_ms},
                                 {"loopback_MBps", d.loopback_MBps}};
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print("{:<12} {:<6} one worker {:7.2f} ms, two {:7.2f} ms: speed-up {:.2f}, bound {:.2f}, {:.2f} of it\n", subject.name, "data",
               d.one_ms, d.two_ms, d.one_ms / d.two_ms, d.one_ms / d.bound_ms, of_bound);
  }
  std::fflush(stdout);
}

void run_pipeline_bench(const PipelineBenchFlags& flags) {
  at::set_num_threads(1);
  for (const std::string& name : flags.models) {
    const Subject subject = make_subject(name, flags.batch);
    report_overhead(subject, measure_overhead(subject, flags), flags.json);
    for (const std::string& schedule : schedule::schedule_names()) {
      report_speed_up(subject, schedule, measure_speed_up(subject, flags, schedule), flags.json);
    }
    if (transport::gloo_part().available)
      report_data_parallel(subject, measure_data_parallel(subject, flags.chunks, flags.rounds), flags.json);
  }
}

}  // namespace

void add_pipeline_bench(CLI::App& bench) {
  auto flags = std::make_shared<PipelineBenchFlags>();  // owned by the callback as well
  auto* command = bench.add_subcommand(
      "pipeline", "Two workers of one thread, as a pipeline and as replicas, against one; the runtime against a plain LibTorch loop");
  command->add_option("--chunks", flags->chunks, "Micro-batches per batch")->check(CLI::Range(1, 4096))->capture_default_str();
  command->add_option("--batch", flags->batch, "Samples per batch")->check(positive_number())->capture_default_str();
  command->add_option("--models", flags->models, "Which ones")
      ->delimiter(',')
      ->check(CLI::IsMember({"cnn", "transformer"}))
      ->capture_default_str();
  command->add_option("--rounds", flags->rounds, "Steps of each kind")->check(positive_number())->capture_default_str();
  command->add_flag("--json", flags->json, "One JSON object per row");
  command->callback([flags] { run_pipeline_bench(*flags); });
}

}  // namespace epipe::cli
