// epipe plan: chooses cuts, schedule and codecs for given machines and links
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "epipe/base/file.h"
#include "epipe/cli/command.h"
#include "epipe/cli/plan_output.h"
#include "epipe/cli/train_flags.h"
#include "epipe/planner/inputs_json.h"
#include "epipe/train/plan_inputs.h"
#include "epipe/transport/link.h"

namespace epipe::cli {
namespace {

using planner::Inputs;

constexpr std::uint64_t kMostCostsBytes = 64 << 20;

struct PlanFlags {
  TrainFlags train;
  std::string workers;
  std::string link;
  std::vector<std::string> keep;
  std::string costs_file;
  double bits = 2;
  int least_samples = 0;
  int runners_up = 5;
  bool exhaustive = false;
  bool json = false;
};

template <typename T>
T parsed(Result<T> result, std::string_view flag) {
  if (!result) throw UsageError(fmt::format("{}: {}", flag, result.error().message));
  return std::move(result).value();
}

std::set<std::string> given_settings(const CLI::App& command) {
  std::set<std::string> given;
  for (const char* name : {"cuts", "place", "schedule", "chunks", "codec", "codec_forward", "codec_backward", "harm"}) {
    std::string flag = std::string("--") + name;
    std::replace(flag.begin(), flag.end(), '_', '-');
    if (command.count(flag) > 0) given.insert(name);
  }
  return given;
}

bool codec_is_given(const std::set<std::string>& given) {
  return given.contains("codec") || given.contains("codec_forward") || given.contains("codec_backward");
}

bool chooses_bits(const train::TrainConfig& config) {
  const auto is_auto = [](const train::CodecAt& at) { return at.spec == "auto"; };
  return config.codec == "auto" || config.codec_forward == "auto" || config.codec_backward == "auto" ||
         std::any_of(config.codec_at.begin(), config.codec_at.end(), is_auto);
}

// Bits that nothing would have.
void check_bits(const PlanFlags& flags, const CLI::App& command, const std::set<std::string>& given) {
  if (command.count("--bits") == 0) return;
  if (!flags.costs_file.empty()) {
    throw UsageError(
        fmt::format("--bits {} and --costs contradict each other: the file's codecs have their bits; leave one out", flags.bits));
  }
  const train::TrainConfig& config = flags.train.config;
  if (!codec_is_given(given) || chooses_bits(config)) return;
  throw UsageError(fmt::format(
      "--bits {} is for codecs that the plan chooses, and --codec {} says which: give that its bits, or leave one of the two out",
      flags.bits, config.codec));
}

// Bounds that nothing would keep.
void check_bounds(const train::TrainConfig& config, const std::set<std::string>& given) {
  if (config.loss_added != train::TrainConfig{}.loss_added) {
    throw UsageError("--loss-added changes no plan: plan with --harm, and give --loss-added to epipe train beside the plan's flags");
  }
  if (!given.contains("harm") || !codec_is_given(given) || chooses_bits(config)) return;
  throw UsageError(fmt::format(
      "--harm {} bounds what codecs do that choose their bits, and --codec {} does not: say --codec auto, or leave one of the two out",
      config.harm, config.codec));
}

train::PlanRequest request_of(const PlanFlags& flags, const CLI::App& command) {
  train::PlanRequest request;
  request.config = flags.train.config;
  request.config.seed = seed_of(flags.train.seed);
  request.given = given_settings(command);
  check_bounds(request.config, request.given);
  check_bits(flags, command, request.given);
  if (flags.workers.empty()) throw UsageError("--workers is required, such as --workers client:cpu,server:host:7000");
  request.workers = parsed(planner::parse_workers(flags.workers), "--workers");
  if (!flags.link.empty()) request.link = parsed(planner::parse_link(flags.link), "--link");
  request.keep = flags.keep;
  request.bits = flags.bits;
  request.least_samples = flags.least_samples;
  const bool whole_link = request.link.up && request.link.down && request.link.delay;
  const auto asks = [&](const planner::WorkerSpec& worker) { return worker.is_server() && (!worker.flops || !whole_link); };
  if (std::any_of(request.workers.begin(), request.workers.end(), asks)) request.dial = connect_config(flags.train.security);
  if (!flags.json) request.note = [](const std::string& text) { fmt::print(stderr, "{} ...\n", text); };
  return request;
}

std::size_t layer_of(const Inputs& inputs, const std::string& text) {
  for (std::size_t l = 0; l < inputs.layers.size(); ++l) {
    if (inputs.layers[l].name == text || fmt::to_string(l) == text) return l;
  }
  throw UsageError(fmt::format("expected a layer of {} by name or index, got {}", inputs.model, text));
}

std::size_t codec_of(const Inputs& inputs, const std::string& spec) {
  for (std::size_t i = 0; i < inputs.codecs.size(); ++i) {
    if (inputs.codecs[i].spec == spec) return i;
  }
  throw UsageError(fmt::format("the costs file does not say what the codec {} costs", spec));
}

void constrain(Inputs& inputs, const train::TrainConfig& config, const std::set<std::string>& given) {
  planner::Constraints& only = inputs.constraints;
  if (given.contains("cuts")) {
    only.cuts.emplace();
    for (const std::string& cut : config.cuts) only.cuts->push_back(layer_of(inputs, cut));
  }
  if (given.contains("place")) only.place = config.place;
  if (given.contains("schedule")) only.schedule = config.schedule;
  if (given.contains("chunks")) only.chunks = config.chunks;
  check_bounds(config, given);
  if (given.contains("harm")) inputs.harm = config.harm;
  if (given.contains("codec") || given.contains("codec_forward")) {
    only.forward_codecs = {codec_of(inputs, config.codec_forward.empty() ? config.codec : config.codec_forward)};
  }
  if (given.contains("codec") || given.contains("codec_backward")) {
    only.backward_codecs = {codec_of(inputs, config.codec_backward.empty() ? config.codec : config.codec_backward)};
  }
}

// The tables of an earlier plan, overridden by the flags given now.
Inputs inputs_from_file(const PlanFlags& flags, const CLI::App& command) {
  if (!flags.workers.empty()) throw UsageError("--workers and --costs contradict each other: the file has the workers; leave one out");
  check_bits(flags, command, given_settings(command));
  const auto file = read_file(flags.costs_file, kMostCostsBytes);
  if (!file) throw UsageError(file.error().message);
  const auto object = nlohmann::json::parse(file.value(), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) throw UsageError(flags.costs_file + ": expected a JSON object, such as epipe plan --json prints");
  Inputs inputs = parsed(planner::inputs_from_json(object.contains("inputs") ? object.at("inputs") : object), flags.costs_file);
  inputs.facts.push_back({"costs", flags.costs_file, "given"});
  if (!flags.link.empty()) {
    const auto link = parsed(planner::parse_link(flags.link), "--link");
    if (link.up) inputs.link.up = planner::payload_rate(*link.up);
    if (link.down) inputs.link.down = planner::payload_rate(*link.down);
    if (link.delay) inputs.link.delay = *link.delay;
    inputs.facts.push_back({"link", flags.link, "given"});
  }
  for (const std::string& layer : flags.keep) inputs.layers[layer_of(inputs, layer)].with_client = true;
  if (command.count("--batch") > 0) inputs.batch = static_cast<double>(flags.train.config.batch);
  if (flags.least_samples > 0) inputs.constraints.least_samples = flags.least_samples;
  constrain(inputs, flags.train.config, given_settings(command));
  return inputs;
}

// What the user says of micro-batches, not what follows from the model.
void check_least_samples(const PlanFlags& flags, const Inputs& inputs) {
  if (flags.least_samples == 0) return;
  const double samples = inputs.batch / inputs.constraints.chunks.value_or(1);
  if (samples >= flags.least_samples) return;
  throw UsageError(fmt::format(
      "--least-samples {} contradicts --batch {} and --chunks {}, which leave micro-batches of {:.4g} samples; {:.4g} are missing",
      flags.least_samples, inputs.batch, inputs.constraints.chunks.value_or(1), samples, flags.least_samples - samples));
}

void run_plan(const train::Registry& registry, const PlanFlags& flags, const CLI::App& command) {
  try {
    const bool measures = flags.costs_file.empty();
    const Inputs inputs = measures ? train::plan_inputs(registry, request_of(flags, command)) : inputs_from_file(flags, command);
    check_least_samples(flags, inputs);
    planner::SearchConfig search;
    search.runners_up = static_cast<std::size_t>(flags.runners_up);
    search.exhaustive = flags.exhaustive;
    auto proposal = planner::search(inputs, search);
    if (!proposal) throw Failure(proposal.error().message);
    flags.json ? fmt::print("{}\n", plan_json(inputs, proposal.value()).dump()) : fmt::print("{}", plan_text(inputs, proposal.value()));
  } catch (const transport::ConnectionLost& error) {
    throw Failure(
        fmt::format("{}; to plan without it, say what it would be measured for: server:HOST:PORT@200GF and --link "
                    "up=10M,down=100M,delay=20ms",
                    error.what()));
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

void add_plan_command(CLI::App& app, const train::Registry& registry) {
  auto flags = std::make_shared<PlanFlags>();  // owned by the callback as well
  auto* command = app.add_subcommand("plan", "Choose cuts, placement, schedule, chunks and codecs for given machines and links");
  command->add_option("--workers", flags->workers,
                      "[NAME:]WHERE[@200GF/8GB/4cores],...: WHERE is cpu, cuda:N or HOST:PORT of a server; behind @ what is not to be "
                      "measured: speed, memory, cores, or here (it shares this machine's cores)");
  command->add_option("--link", flags->link,
                      "up=10M,down=100M,delay=20ms: bits per second and one way's time; what is left out is measured");
  command->add_option("--keep", flags->keep, "Layers that stay with the client besides the first and the last: names, indices or ranges")
      ->delimiter(',');
  command->add_option("--bits", flags->bits, "Bits of a value, where no codec is given")
      ->check(CLI::Range(0.01, 16.0))
      ->capture_default_str();
  command
      ->add_option("--least-samples", flags->least_samples,
                   "Samples of a micro-batch, at least; 0: 8 where the model has BatchNorm, otherwise 1")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--costs", flags->costs_file, "Plan with the tables of this file, which --json prints, and measure nothing");
  command->add_option("--runners-up", flags->runners_up, "How many other plans to show")->check(CLI::Range(0, 100))->capture_default_str();
  command->add_flag("--exhaustive", flags->exhaustive,
                    "Simulate every combination, also those that cannot be faster: slow, to check the search");
  command->add_flag("--json", flags->json, "One JSON object");
  add_stage_flags(*command, flags->train);
  for (const char* name : {"schedule", "in_flight", "recompute", "optimizer", "momentum", "lora", "freeze"}) {
    add_named_flag(*command, flags->train, name);
  }
  add_security_flags(*command, flags->train.security, false);
  command->callback([flags, command, &registry] { run_plan(registry, *flags, *command); });
}

}  // namespace epipe::cli
