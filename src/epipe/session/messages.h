#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"
#include "epipe/layer/batch.h"
#include "epipe/model/named_tensors.h"
#include "epipe/pipeline/pipeline.h"
#include "epipe/session/audit.h"
#include "epipe/session/checkpoint.h"
#include "epipe/session/update.h"

// What the coordinator of a run says to its participants, and what they answer. One struct for each command and one for its reply; fields()
// names what travels, for writing and for reading alike. To add a message: its two structs here, a place at the end of the variants, and a
// handler in each Participant.
//
//   1 byte   which alternative of Command or Reply
//   4 bytes  N, little-endian
//   N bytes  JSON object of the fields that are no tensors
//   rest     safetensors, or nothing
namespace epipe::session {

// For messages that say all by their type.
struct NoFields {
  template <typename Self, typename Visit>
  static void fields(Self&, Visit&) {}
};

// Build the stages of `worker`, or find them as they were.
struct ConfigureReply {
  static constexpr std::string_view kName = "configured";
  std::optional<std::uint64_t> steps_done;  // nothing: it has no memory of the run
  std::optional<std::uint64_t> pending;     // gradients that wait for their commit
  CheckpointList checkpoints;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit("steps_done", self.steps_done);
    visit("pending", self.pending);
    visit("checkpoints", self.checkpoints.whole);
    visit("damaged", self.checkpoints.damaged);
  }
};
struct ConfigureCommand {
  static constexpr std::string_view kName = "configure";
  using Answer = ConfigureReply;
  nlohmann::json spec;  // of the run; train/ knows what is in it
  int worker = 0;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit("spec", self.spec);
    visit("worker", self.worker);
  }
};

// Begin at step 0 from these weights; they come layer by layer, so that nobody holds all of them.
struct LoadReply : NoFields {
  static constexpr std::string_view kName = "loaded";
};
struct LoadCommand {
  static constexpr std::string_view kName = "load";
  using Answer = LoadReply;
  std::size_t layer = 0;  // of the model
  bool last = false;      // all that this participant runs were sent
  model::NamedTensors weights;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit("layer", self.layer);
    visit("last", self.last);
    visit.tensors(self.weights);
  }
};

// Go back to a checkpoint of this process.
struct RestoreReply : NoFields {
  static constexpr std::string_view kName = "restored";
};
struct RestoreCommand {
  static constexpr std::string_view kName = "restore";
  using Answer = RestoreReply;
  std::uint64_t step = 0;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit("step", self.step);
  }
};

// Open the data channels to the other processes.
struct OpenChannelsReply : NoFields {
  static constexpr std::string_view kName = "channels open";
};
struct OpenChannelsCommand {
  static constexpr std::string_view kName = "open channels";
  using Answer = OpenChannelsReply;
  std::uint64_t attempt = 0;           // counts the connections of the run
  std::vector<std::string> addresses;  // of workers 1, 2, ...; empty where they know each other
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit("attempt", self.attempt);
    visit("addresses", self.addresses);
  }
};

// Gradients of a batch, or its evaluation; nothing changes yet.
struct StepReply {
  static constexpr std::string_view kName = "stepped";
  pipeline::StepResult result;
  std::map<std::string, double> norms;  // squared, of the gradients, by parameter; where they were asked for
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit("result", self.result);
    visit("norms", self.norms);
    visit.tensor("predictions", self.result.predictions);
    visit.tensor("targets", self.result.targets);
  }
};
// Everything about a batch but its inputs. Labels go only to a process that has the last stage.
struct StepCommand {
  static constexpr std::string_view kName = "step";
  using Answer = StepReply;
  layer::Batch batch;
  pipeline::StepId id;
  bool training = true;
  bool norms = false;  // of the gradients are wanted
  void check() const;  // throws std::invalid_argument
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit("epoch", self.id.epoch);
    visit("step", self.id.step);
    visit("chunks", self.id.chunks);
    visit("measure_error", self.id.measure_error);
    visit("loss_scale", self.id.loss_scale);
    visit("terms", self.id.terms);
    visit("samples", self.batch.samples);
    visit("training", self.training);
    visit("norms", self.norms);
    visit("rates", self.id.rates);
    visit.tensor_list("side", self.batch.side);
    visit.tensor("targets", self.batch.targets);
  }
};
// The same to worker 0 of another replica, which loads its own part of the batch.
struct ReplicaStepCommand {
  static constexpr std::string_view kName = "replica step";
  using Answer = StepReply;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  bool measure_error = false;
  bool training = true;
  pipeline::Rates rates{};
  void check() const { check_rates(rates); }
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit("epoch", self.epoch);
    visit("step", self.step);
    visit("measure_error", self.measure_error);
    visit("training", self.training);
    visit("rates", self.rates);
  }
};

// Apply the gradients of a step; once, however often it is said.
struct CommitReply {
  static constexpr std::string_view kName = "committed";
  bool drain = false;  // the operator of this process asks the coordinator to save and leave
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit("drain", self.drain);
  }
};
struct CommitCommand {
  static constexpr std::string_view kName = "commit";
  using Answer = CommitReply;
  std::uint64_t step = 0;
  Update update;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit("step", self.step);
    visit("lr", self.update.lr);
    visit("scale", self.update.scale);
    visit("skip", self.update.skip);
  }
};

// Write a checkpoint.
struct SaveReply : NoFields {
  static constexpr std::string_view kName = "saved";
};
struct SaveCommand : NoFields {
  static constexpr std::string_view kName = "save";
  using Answer = SaveReply;
};

// The weights of one layer as they are now, all of them or those that are trained.
struct WeightsReply {
  static constexpr std::string_view kName = "weights";
  model::NamedTensors weights;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit.tensors(self.weights);
  }
};
struct WeightsCommand {
  static constexpr std::string_view kName = "get weights";
  using Answer = WeightsReply;
  std::size_t layer = 0;
  bool trained = false;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit("layer", self.layer);
    visit("trained", self.trained);
  }
};

// The clock of the timeline, which begins with the participant.
struct ClockReply {
  static constexpr std::string_view kName = "clock";
  double now = 0;  // seconds
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit("now", self.now);
  }
};
struct ClockCommand : NoFields {
  static constexpr std::string_view kName = "get clock";
  using Answer = ClockReply;
};

// What the participant did when, see timeline.h.
struct TimelineReply {
  static constexpr std::string_view kName = "timeline";
  nlohmann::json events = nlohmann::json::array();
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit("events", self.events);
  }
};
struct TimelineCommand : NoFields {
  static constexpr std::string_view kName = "get timeline";
  using Answer = TimelineReply;
};

// The run is over and its checkpoints go.
struct EndReply : NoFields {
  static constexpr std::string_view kName = "ended";
};
struct EndCommand : NoFields {
  static constexpr std::string_view kName = "end";
  using Answer = EndReply;
};

// The coordinator leaves and will come back some day.
struct LeaveReply : NoFields {
  static constexpr std::string_view kName = "left";
};
struct LeaveCommand : NoFields {
  static constexpr std::string_view kName = "leave";
  using Answer = LeaveReply;
};

// One micro-batch of a step that the coordinator decides as it goes, instead of StepCommand: its tensor comes through the first cut, what
// becomes of it leaves through the second. Gradients add up until the commit.
struct ForwardReply : NoFields {
  static constexpr std::string_view kName = "forward done";
};
struct ForwardCommand {
  static constexpr std::string_view kName = "forward";
  using Answer = ForwardReply;
  std::uint64_t step = 0;
  std::uint32_t micro_batch = 0;      // a number that no other one of this step has
  bool begins = false;                // a new step: what was computed of one before and not committed is dropped
  bool training = true;               // a backward will follow; otherwise evaluation mode
  std::vector<std::int64_t> samples;  // ids, which dropout depends on
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit("step", self.step);
    visit("micro_batch", self.micro_batch);
    visit("begins", self.begins);
    visit("training", self.training);
    visit("samples", self.samples);
  }
};
struct BackwardReply : NoFields {
  static constexpr std::string_view kName = "backward done";
};
// The gradient comes through the second cut and that of the input leaves through the first. Each micro-batch once, in any order.
struct BackwardCommand {
  static constexpr std::string_view kName = "backward";
  using Answer = BackwardReply;
  std::uint64_t step = 0;
  std::uint32_t micro_batch = 0;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit("step", self.step);
    visit("micro_batch", self.micro_batch);
  }
};

// Some micro-batches of an audit (audit.h). Nothing changes, then or later.
struct AuditReply {
  static constexpr std::string_view kName = "audited";
  AuditPartResult result;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit("result", self.result.step);
    visit("curves", self.result.curves);
    visit("sums", self.result.sums);
    visit("losses", self.result.losses);
    visit("non_finite", self.result.non_finite);
  }
};
// As StepCommand: everything about the micro-batches but their inputs.
struct AuditCommand {
  static constexpr std::string_view kName = "audit";
  using Answer = AuditReply;
  layer::Batch batch;  // the micro-batches one after the other, all of one size
  pipeline::StepId id;
  AuditPart part;
  void check() const;  // throws std::invalid_argument
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit("epoch", self.id.epoch);
    visit("step", self.id.step);
    visit("chunks", self.id.chunks);
    visit("loss_scale", self.id.loss_scale);
    visit("terms", self.id.terms);
    visit("samples", self.batch.samples);
    visit("first", self.part.first);
    visit("last", self.part.last);
    visit("rates", self.part.rates);
    visit("tried", self.part.tried);
    visit.tensor_list("side", self.batch.side);
    visit.tensor("targets", self.batch.targets);
  }
};

// Bytes there and bytes back, for their time. Nothing is done with them.
inline constexpr std::uint64_t kMostProbeBytes = std::uint64_t{1} << 24;
torch::Tensor probe_bytes(std::uint64_t count);  // uint8 zeros; undefined: none
struct LinkProbeReply {
  static constexpr std::string_view kName = "link probed";
  torch::Tensor bytes;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit.tensor("bytes", self.bytes);
  }
};
struct LinkProbeCommand {
  static constexpr std::string_view kName = "probe link";
  using Answer = LinkProbeReply;
  torch::Tensor bytes;
  std::uint64_t reply_bytes = 0;
  void check() const;  // throws std::invalid_argument
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit("reply_bytes", self.reply_bytes);
    visit.tensor("bytes", self.bytes);
  }
};
// Where gradients are applied one step late: forwards of a step beside backwards of the one before, whose gradients then wait for their
// commit. The loss is that of the forwards.
struct OverlappedStepReply {
  static constexpr std::string_view kName = "overlapped";
  pipeline::StepResult result;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit("result", self.result);
  }
};
// As StepCommand: everything about the batch but its inputs.
struct OverlappedStepCommand {
  static constexpr std::string_view kName = "overlapped step";
  using Answer = OverlappedStepReply;
  bool forwards = true;  // false: there is no batch, only the backwards of the step before
  layer::Batch batch;
  pipeline::StepId id;
  void check() const;  // throws std::invalid_argument
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit("forwards", self.forwards);
    visit("epoch", self.id.epoch);
    visit("step", self.id.step);
    visit("chunks", self.id.chunks);
    visit("measure_error", self.id.measure_error);
    visit("terms", self.id.terms);
    visit("samples", self.batch.samples);
    visit.tensor_list("side", self.batch.side);
    visit.tensor("targets", self.batch.targets);
  }
};
// After it, and before the commit of the step before: the first backwards of the step that had its forwards (schedule/overlapped.h).
struct EarlyBackwardsReply : NoFields {
  static constexpr std::string_view kName = "early backwards done";
};
struct EarlyBackwardsCommand : NoFields {
  static constexpr std::string_view kName = "early backwards";
  using Answer = EarlyBackwardsReply;
};

// A command that was not carried out.
struct ErrorReply {
  static constexpr std::string_view kName = "failed";
  std::string error;
  bool retry = false;         // connecting again may help
  bool replica_lost = false;  // another replica is lost, not a process of this one
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit& visit) {
    visit("error", self.error);
    visit("retry", self.retry);
    visit("replica_lost", self.replica_lost);
  }
};

// Their order is part of the protocol.
using Command = std::variant<ConfigureCommand, LoadCommand, RestoreCommand, OpenChannelsCommand, StepCommand, ReplicaStepCommand,
                             CommitCommand, SaveCommand, WeightsCommand, ClockCommand, TimelineCommand, EndCommand, LeaveCommand,
                             ForwardCommand, BackwardCommand, AuditCommand, LinkProbeCommand, OverlappedStepCommand, EarlyBackwardsCommand>;
using Reply = std::variant<ErrorReply, ConfigureReply, LoadReply, RestoreReply, OpenChannelsReply, StepReply, CommitReply, SaveReply,
                           WeightsReply, ClockReply, TimelineReply, EndReply, LeaveReply, ForwardReply, BackwardReply, AuditReply,
                           LinkProbeReply, OverlappedStepReply, EarlyBackwardsReply>;

template <typename Message>  // Command or Reply
std::string_view name_of(const Message& message) {
  return std::visit([](const auto& one) { return std::decay_t<decltype(one)>::kName; }, message);
}

Bytes to_bytes(const Command& command);
Bytes to_bytes(const Reply& reply);
// Trust nothing; allocate in proportion to `bytes`.
Result<Command> read_command(ByteView bytes);
Result<Reply> read_reply(ByteView bytes);

}  // namespace epipe::session
