#pragma once

#include "epipe/layer/batch.h"
#include "epipe/pipeline/pipeline.h"
#include "epipe/train/message.h"

namespace epipe::train {

// What a process must know of a batch to take part in a step: everything but the inputs. Labels only go to a process that has the last
// stage.
struct StepCommand {
  layer::Batch batch;
  pipeline::StepId id;
  bool training = true;
  bool norms = false;  // of the gradients are wanted
};

Message step_message(const StepCommand& head, bool with_targets);
// To the leader of another replica, which has its own part of the batch.
Message leader_step_message(const StepCommand& head);
// Trusts nothing. Throws std::invalid_argument.
StepCommand read_step_command(const Message& message);

}  // namespace epipe::train
