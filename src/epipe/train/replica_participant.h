#pragma once

#include <memory>

#include "epipe/session/participant.h"
#include "epipe/train/assemble.h"

namespace epipe::train {

// Worker 0 of any replica but the first: a participant of the run, and the coordinator of its own replica. Step commands do not name
// samples: it loads its own part of the batch.
class ReplicaParticipant final : public session::Participant {
 public:
  // Registry and connector outlive it; `replicas`: worker 0 in all replicas.
  ReplicaParticipant(const Registry& registry, const TrainConfig& config, session::PeerConnector& connector,
                     std::unique_ptr<transport::Group> replicas);

  session::Reply handle(const session::Command& command) override;
  bool ended() const override { return ended_; }

 private:
  session::Reply on(const session::ConfigureCommand& command);
  session::Reply on(const session::LoadCommand& command);
  session::Reply on(const session::RestoreCommand& command);
  session::Reply on(const session::OpenChannelsCommand& command);
  session::Reply on(const session::StepCommand& command);
  session::Reply on(const session::ReplicaStepCommand& command);
  session::Reply on(const session::CommitCommand& command);
  session::Reply on(const session::SaveCommand& command);
  session::Reply on(const session::WeightsCommand& command);
  session::Reply on(const session::ClockCommand& command);
  session::Reply on(const session::TimelineCommand& command);
  session::Reply on(const session::EndCommand& command);
  session::Reply on(const session::LeaveCommand& command);
  session::Reply on(const session::ForwardCommand& command);
  session::Reply on(const session::BackwardCommand& command);
  session::Reply on(const session::AuditCommand& command);
  session::Reply on(const session::LinkProbeCommand& command);
  session::Reply on(const session::OverlappedStepCommand& command);
  session::Reply on(const session::EarlyBackwardsCommand& command);
  pipeline::StepResult train(const session::ReplicaStepCommand& command);
  pipeline::StepResult evaluate(const session::ReplicaStepCommand& command);
  void begin();
  session::Coordinator& coordinator();

  const Registry& registry_;
  TrainConfig config_;
  session::PeerConnector& connector_;
  std::unique_ptr<transport::Group> replicas_;  // moved to the run once there is one
  std::optional<RunParts> run_;                 // nullopt until the run is configured
  std::unique_ptr<data::Loader> training_;
  std::unique_ptr<data::Loader> validation_;
  std::uint64_t validated_ = 0;  // batches taken from it
  bool ended_ = false;
};

}  // namespace epipe::train
