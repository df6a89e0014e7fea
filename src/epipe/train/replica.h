#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "epipe/train/follower.h"
#include "epipe/train/run.h"

namespace epipe::train {

// Worker 0 of another replica than the first: obeys the run's client, and leads the team of its own replica. Its commands are those of a
// follower, but a step names no samples: the leader loads its own part of the batch.
class ReplicaLeader final : public Led {
 public:
  // `reach` outlives the leader; `replicas`: worker 0 in all replicas.
  ReplicaLeader(const TrainConfig& config, Reach& reach, std::unique_ptr<transport::Group> replicas);

  Message obey(const Message& command) override;
  bool ended() const override { return ended_; }

 private:
  Message obeyed(const Message& command);
  Message plan(const nlohmann::json& theirs);
  Message step(const Message& command);
  pipeline::StepResult train(const Message& command);
  pipeline::StepResult evaluate(const Message& command);
  void begin();
  Run& run();

  TrainConfig config_;
  Reach& reach_;
  std::unique_ptr<transport::Group> replicas_;  // the run's as soon as there is one
  std::unique_ptr<Run> run_;                    // null until a plan was given
  std::unique_ptr<data::Loader> training_;
  std::unique_ptr<data::Loader> validation_;
  std::uint64_t validated_ = 0;  // batches that were taken from it
  bool ended_ = false;
};

}  // namespace epipe::train
