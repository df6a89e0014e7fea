#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "epipe/train/participant.h"
#include "epipe/train/run.h"

namespace epipe::train {

// Worker 0 of another replica than the first: handles the run's client, and leads the coordinator of its own replica. Its commands are
// those of a participant, but a step names no samples: the leader loads its own part of the batch.
class ReplicaParticipant final : public Participant {
 public:
  // Registry and connector outlive the leader; `replicas`: worker 0 in all replicas.
  ReplicaParticipant(const Registry& registry, const TrainConfig& config, PeerConnector& connector,
                     std::unique_ptr<transport::Group> replicas);

  Message handle(const Message& command) override;
  bool ended() const override { return ended_; }

 private:
  Message handle_checked(const Message& command);
  Message plan(const nlohmann::json& theirs);
  Message step(const Message& command);
  pipeline::StepResult train(const Message& command);
  pipeline::StepResult evaluate(const Message& command);
  void begin();
  Run& run();

  const Registry& registry_;
  TrainConfig config_;
  PeerConnector& connector_;
  std::unique_ptr<transport::Group> replicas_;  // the run's as soon as there is one
  std::unique_ptr<Run> run_;                    // null until a plan was given
  std::unique_ptr<data::Loader> training_;
  std::unique_ptr<data::Loader> validation_;
  std::uint64_t validated_ = 0;  // batches that were taken from it
  bool ended_ = false;
};

}  // namespace epipe::train
