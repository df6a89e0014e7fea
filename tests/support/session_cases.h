#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "epipe/session/worker_participant.h"
#include "epipe/train/plan.h"
#include "epipe/train/spec_trainer.h"
#include "support/models.h"

// Small runs of which worker 1 is a session, and what a proper client says to it.
namespace epipe::testing {

// Commands of a proper client, each right in its place.
enum class Proper : std::uint8_t {
  kConfigure,
  kLoad,
  kOpenChannels,
  kStep0,
  kCommit0,
  kStep1,
  kCommit1,
  kEvaluate,
  kSave,
  kRestore2,
  kWeights,
  kClock,
  kTimeline,
  kLeave,
  kEnd
};
inline constexpr std::size_t kProperCommands = static_cast<std::size_t>(Proper::kEnd) + 1;

struct SessionCase {
  train::Plan plan;
  std::vector<std::int64_t> samples = {1};  // of every batch
  std::vector<std::int64_t> shape = {128};  // of one sample's tensor at a cut
  bool cluster = false;                     // its last worker is sent the labels, which no server would be
};

inline SessionCase small_case(const std::string& codec) {
  SessionCase small;
  small.plan.model = "mlp";
  small.plan.data = {data::DataSpec::Kind::kImages, {1, 4, 4}, 3, 0};
  small.plan.cuts = {1, 2};
  small.plan.place = {0, 1, 0};
  small.plan.codecs = {{codec, codec}, {codec, codec}};
  return small;
}

inline SessionCase chunked_case(const std::string& codec) {
  SessionCase chunked = small_case(codec);
  chunked.samples = {7, 3};
  chunked.plan.chunks = 2;
  return chunked;
}

inline std::vector<SessionCase> make_session_cases() {
  SessionCase plain = small_case("none");
  SessionCase sorted = chunked_case("sort:6+2");
  sorted.plan.schedule = "1f1b";
  sorted.plan.recompute = true;
  sorted.plan.momentum = 0.9;
  SessionCase stateful = small_case("power:1");
  stateful.plan.optimizer = "adamw";
  SessionCase scaled = chunked_case("ec:4");
  scaled.plan.loss_scaling = true;
  scaled.plan.precision = "bf16";
  SessionCase ring = chunked_case("topk:0.1");  // its later neighbour is another server
  ring.plan.cuts = {1, 2, 3};
  ring.plan.place = {0, 1, 2, 0};
  ring.plan.codecs.push_back(ring.plan.codecs[0]);
  SessionCase chain = chunked_case("uniform:8");
  chain.plan.cuts = {3};
  chain.plan.place = {0, 1};
  chain.plan.codecs.pop_back();
  chain.cluster = true;
  SessionCase text = small_case("none");
  text.plan.model = "transformer";
  text.plan.data = {data::DataSpec::Kind::kText, {2}, 3, 9};
  text.shape = {2, 64};
  SessionCase late = chunked_case("ec:4");
  late.plan.delay = 1;
  return {plain, sorted, stateful, scaled, ring, chain, text, late};
}

inline const std::vector<SessionCase>& session_cases() {
  static const std::vector<SessionCase> kCases = make_session_cases();
  return kCases;
}

// How such a session makes its trainer.
inline void make_trainers(session::ParticipantConfig& participant, std::function<void(const nlohmann::json&, int)> admit = {}) {
  train::SpecTrainerConfig trainer;
  trainer.registry = &registry();
  trainer.admit = std::move(admit);
  make_trainers_from_specs(participant, std::move(trainer));
}

inline session::ConfigureCommand configure_command(const SessionCase& of) { return {to_json(of.plan), 1}; }

// All layers of worker 1: one, in all of the cases.
inline session::LoadCommand load_command(const SessionCase& of) {
  const std::size_t layer = of.plan.cuts[0];
  const auto model = make_model(of.plan.model, of.plan.data, of.plan.seed);
  return {layer, true, session::weights_of(*model.layers[layer])};
}

inline session::OpenChannelsCommand open_channels_command() { return {1, {"127.0.0.1:1", "127.0.0.1:2"}}; }

inline session::StepCommand step_command(const SessionCase& of, std::uint64_t step, bool training) {
  session::StepCommand command;
  command.id = {0, step, of.plan.chunks};
  command.training = training;
  command.norms = training;
  command.batch.samples = of.samples;
  const auto size = static_cast<std::int64_t>(of.samples.size());
  if (of.plan.data.kind == data::DataSpec::Kind::kText) command.batch.side = {torch::ones({size, of.plan.data.shape[0]})};
  if (of.cluster) command.batch.targets = torch::zeros({size}, torch::kInt64);
  return command;
}

// Step `step` beside the backwards of the one before; without forwards these alone.
inline session::OverlappedStepCommand overlapped_command(const SessionCase& of, std::uint64_t step, bool forwards) {
  session::OverlappedStepCommand command;
  command.forwards = forwards;
  if (!forwards) return command;
  command.id = {0, step, of.plan.chunks};
  command.batch.samples = of.samples;
  return command;
}

// The first two micro-batches of an audit, at the rates of the specs and at higher ones.
inline session::AuditCommand audit_command(const SessionCase& of) {
  session::AuditCommand command;
  command.batch.samples = {7, 3};
  command.id = {0, 0, 2, false, 2};
  const std::size_t directions = 2 * of.plan.cuts.size();
  command.part = {0, true, {std::vector<double>(directions, 0), std::vector<double>(directions, 16)}, {}};
  command.part.tried.assign(directions, {1, 2});
  return command;
}

inline session::CommitCommand commit_command(std::uint64_t step, bool skip = false) { return {step, {0.1, 1, skip}}; }

inline session::Command command_of(Proper command, const SessionCase& of) {
  switch (command) {
    case Proper::kConfigure: return configure_command(of);
    case Proper::kLoad: return load_command(of);
    case Proper::kOpenChannels: return open_channels_command();
    case Proper::kStep0: return step_command(of, 0, true);
    case Proper::kCommit0: return commit_command(0);
    case Proper::kStep1: return step_command(of, 1, true);
    case Proper::kCommit1: return commit_command(1);
    case Proper::kEvaluate: return step_command(of, 2, false);
    case Proper::kSave: return session::SaveCommand{};
    case Proper::kRestore2: return session::RestoreCommand{2};
    case Proper::kWeights: return session::WeightsCommand{of.plan.cuts[0]};
    case Proper::kClock: return session::ClockCommand{};
    case Proper::kTimeline: return session::TimelineCommand{};
    case Proper::kLeave: return session::LeaveCommand{};
    case Proper::kEnd: return session::EndCommand{};
  }
  return session::EndCommand{};
}

}  // namespace epipe::testing
