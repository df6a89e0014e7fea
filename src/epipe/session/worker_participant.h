#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "epipe/session/local_trainer.h"
#include "epipe/session/participant.h"

namespace epipe::session {

// A data channel to another process that the coordinator wants open.
struct ChannelRequest {
  int cut = 0;
  int worker = 0;             // here
  int peer = 0;               // there
  std::string address;        // of the peer, where the coordinator gave one; nobody vouches for it
  std::uint64_t attempt = 0;  // counts the connections of the run
};

// What a process offers to the coordinator of a run.
struct ParticipantConfig {
  // Makes what this process computes of a run. Trusts nothing in the spec; throws std::invalid_argument to refuse it, before anything
  // is built. The tracer outlives the trainer.
  std::function<std::unique_ptr<LocalTrainer>(const nlohmann::json& spec, int worker, Tracer& tracer)> make_trainer;
  // "--batch: 32 here, 64 there; --codec: ..."; empty where the two specs agree.
  std::function<std::string(const nlohmann::json& here, const nlohmann::json& there)> differences;
  // This process's end of a data channel. Throws ConnectionLost or TimedOut when the other end does not come, std::invalid_argument to
  // refuse.
  std::function<std::unique_ptr<transport::Link>(const ChannelRequest&)> open_channel;
  std::string checkpoints;             // folder
  std::uint64_t checkpoint_bytes = 0;  // that they may take there; 0: no limit
  bool keep_checkpoints = false;       // also when the run has ended
  std::string activations{};           // a file of the run's beside them, which goes with them; empty: there is none
  // Errors that name the folder come here, and the coordinator is told all but its path; empty: it may know it.
  std::function<void(const std::string& error)> log{};
  transport::Timeout timeout = std::chrono::minutes(2);  // with other processes within a step
  const std::atomic<bool>* drain = nullptr;              // when true, replies ask the coordinator to save and leave
};

// Holds the stages of one worker and does what the coordinator's commands say (messages.h).
class WorkerParticipant final : public Participant {
 public:
  explicit WorkerParticipant(ParticipantConfig config);
  ~WorkerParticipant() override;

  Reply handle(const Command& command) override;
  bool ended() const override { return ended_; }
  // What does not survive a lost coordinator: the data channels to other processes.
  void disconnect();
  // Whether it has a state that a coordinator could continue from.
  bool holds_run() const { return local_ != nullptr && !fresh_; }

 private:
  Reply on(const ConfigureCommand& command);
  Reply on(const LoadCommand& command);
  Reply on(const RestoreCommand& command);
  Reply on(const OpenChannelsCommand& command);
  Reply on(const StepCommand& command);
  Reply on(const ReplicaStepCommand& command);
  Reply on(const CommitCommand& command);
  Reply on(const SaveCommand& command);
  Reply on(const WeightsCommand& command);
  Reply on(const ClockCommand& command);
  Reply on(const TimelineCommand& command);
  Reply on(const EndCommand& command);
  Reply on(const LeaveCommand& command);
  Reply on(const ForwardCommand& command);
  Reply on(const BackwardCommand& command);
  Reply on(const AuditCommand& command);
  Reply on(const LinkProbeCommand& command);
  Reply on(const OverlappedStepCommand& command);
  Reply on(const EarlyBackwardsCommand& command);
  void check_step(const pipeline::StepId& id, int most);
  void run_action(const std::function<void(LocalTrainer&)>& action);
  LocalTrainer& local();
  LocalTrainer& begun_run();  // that has weights
  LocalTrainer& connected_run();
  void hide_folder(ErrorReply& reply) const;

  ParticipantConfig config_;
  Tracer tracer_;
  Checkpoints checkpoints_;
  nlohmann::json spec_;
  int worker_ = 0;
  std::unique_ptr<LocalTrainer> local_;  // null until a spec was given
  bool fresh_ = false;                   // it has no weights yet, or not all of them
  bool ended_ = false;
};

}  // namespace epipe::session
