#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "epipe/model/model.h"
#include "epipe/train/local_trainer.h"
#include "epipe/train/message.h"
#include "epipe/train/plan.h"
#include "epipe/train/step_command.h"

// Small runs of which worker 1 is a session, and what a proper client says to it.
namespace epipe::testing {

// Commands of a proper client, each right in its place.
enum class Proper : std::uint8_t {
  kPlan,
  kLoad,
  kConnect,
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
  chain.plan.cuts = {2};
  chain.plan.place = {0, 1};
  chain.plan.codecs.pop_back();
  chain.cluster = true;
  SessionCase text = small_case("none");
  text.plan.model = "transformer";
  text.plan.data = {data::DataSpec::Kind::kText, {2}, 3, 9};
  text.shape = {2, 64};
  return {plain, sorted, stateful, scaled, ring, chain, text};
}

inline const std::vector<SessionCase>& session_cases() {
  static const std::vector<SessionCase> kCases = make_session_cases();
  return kCases;
}

inline train::Message plan_message(const SessionCase& of) { return {"plan", {{"plan", to_json(of.plan)}, {"worker", 1}}}; }

inline train::Message load_message(const SessionCase& of) {
  return {"load", nlohmann::json::object(), weights_of(model::make_model(of.plan.model, of.plan.data, of.plan.seed), of.plan, {1})};
}

inline train::Message connect_message() { return {"connect", {{"attempt", 1}, {"addresses", {"127.0.0.1:1", "127.0.0.1:2"}}}}; }

inline train::Message step_message(const SessionCase& of, std::uint64_t step, bool training) {
  train::StepCommand head;
  head.id = {0, step, of.plan.chunks};
  head.training = training;
  head.norms = training;
  head.batch.samples = of.samples;
  const auto size = static_cast<std::int64_t>(of.samples.size());
  if (of.plan.data.kind == data::DataSpec::Kind::kText) head.batch.side = {torch::ones({size, of.plan.data.shape[0]})};
  head.batch.targets = torch::zeros({size}, torch::kInt64);
  return train::step_message(head, of.cluster);
}

inline train::Message commit_message(std::uint64_t step, bool skip = false) {
  return {"commit", {{"step", step}, {"lr", 0.1}, {"scale", 1}, {"skip", skip}}};
}

inline train::Message message_of(Proper command, const SessionCase& of) {
  switch (command) {
    case Proper::kPlan: return plan_message(of);
    case Proper::kLoad: return load_message(of);
    case Proper::kConnect: return connect_message();
    case Proper::kStep0: return step_message(of, 0, true);
    case Proper::kCommit0: return commit_message(0);
    case Proper::kStep1: return step_message(of, 1, true);
    case Proper::kCommit1: return commit_message(1);
    case Proper::kEvaluate: return step_message(of, 2, false);
    case Proper::kSave: return {"save"};
    case Proper::kRestore2: return {"restore", {{"step", 2}}};
    case Proper::kWeights: return {"weights"};
    case Proper::kClock: return {"clock"};
    case Proper::kTimeline: return {"timeline"};
    case Proper::kLeave: return {"leave"};
    case Proper::kEnd: return {"end"};
  }
  return {};
}

}  // namespace epipe::testing
