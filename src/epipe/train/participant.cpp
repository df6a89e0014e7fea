#include "epipe/train/participant.h"

#include <fmt/format.h>

#include <new>
#include <stdexcept>

#include "epipe/base/file.h"
#include "epipe/base/queue.h"
#include "epipe/train/learned_codecs.h"
#include "epipe/train/step_command.h"
#include "epipe/train/step_json.h"
#include "epipe/train/timeline.h"

namespace epipe::train {
namespace {

using nlohmann::json;

constexpr std::string_view kCheckpointsShown = "checkpoints";

Message failed(const std::string& error, bool again) { return {"failed", {{"error", error}, {"again", again}}}; }

}  // namespace

WorkerParticipant::WorkerParticipant(ParticipantConfig config)
    : config_(std::move(config)), tracer_(kParticipantEvents), checkpoints_(config_.checkpoints, config_.checkpoint_bytes) {}
WorkerParticipant::~WorkerParticipant() = default;

Message answer_of(const std::function<Message()>& work) {
  try {
    return work();
  } catch (const ReplicaLost& error) {
    Message answer = failed(error.what(), true);
    answer.fields["replica"] = true;  // lost, not a process of this one
    return answer;
  } catch (const transport::ConnectionLost& error) {
    return failed(error.what(), true);
  } catch (const transport::TimedOut& error) {
    return failed(error.what(), true);
  } catch (const Closed&) {
    return failed("the data channel to another process was closed", true);
  } catch (const std::bad_alloc&) {
    return failed("there is not enough memory for this command; --session-memory of the server limits it", false);
  } catch (const c10::Error& error) {
    return failed(error.what_without_backtrace(), false);
  } catch (const std::exception& error) {
    return failed(error.what(), false);
  }
}

Message WorkerParticipant::handle(const Message& command) {
  Message answer = answer_of([&] { return handle_checked(command); });
  if (answer.kind == "failed" && config_.log) hide_folder(answer);
  return answer;
}

// Where this process keeps its files is for its operator alone.
void WorkerParticipant::hide_folder(Message& answer) const {
  auto error = answer.fields.at("error").get<std::string>();
  if (config_.checkpoints.empty() || error.find(config_.checkpoints) == std::string::npos) return;
  config_.log(error);
  for (auto at = error.find(config_.checkpoints); at != std::string::npos; at = error.find(config_.checkpoints, at)) {
    error.replace(at, config_.checkpoints.size(), kCheckpointsShown);
    at += kCheckpointsShown.size();
  }
  answer.fields["error"] = error + "; the log there says where";
}

Message WorkerParticipant::handle_checked(const Message& command) {
  if (command.kind == "plan") return plan(command);
  if (command.kind == "load") return load(command);
  if (command.kind == "restore") return restore(command);
  if (command.kind == "connect") return connect(command);
  if (command.kind == "step") return step(command);
  if (command.kind == "commit") return commit(command);
  if (command.kind == "save") return save();
  if (command.kind == "weights") return weights();
  if (command.kind == "clock") return clock();
  if (command.kind == "timeline") return timeline();
  if (command.kind == "end") return end();
  if (command.kind == "leave") return leave();
  throw std::invalid_argument(fmt::format("unknown command {}", model::in_quotes(command.kind)));
}

LocalTrainer& WorkerParticipant::local() {
  if (!local_) throw std::logic_error("no plan was given yet");
  return *local_;
}

Message WorkerParticipant::plan(const Message& command) {
  const json theirs = field_of<json>(command, "plan");
  if (local_) {
    const std::string different = differences(plan_, theirs);
    if (!different.empty()) throw std::invalid_argument("this session has another plan: " + different);
    local_->disconnect();
  } else {
    Plan plan = plan_from_json(theirs);
    worker_ = field_of<int>(command, "worker");
    const int count = schedule::Placement{plan.place}.workers();
    if (worker_ < 0 || worker_ >= count) throw std::invalid_argument(fmt::format("there is no worker {} in the plan", worker_));
    if (config_.admit) config_.admit(theirs, worker_);
    const std::vector<torch::Device> devices(static_cast<std::size_t>(count), config_.device);
    auto architecture = config_.registry->models.architecture(plan.model, plan.data);
    insert_learned_codecs(architecture, plan);
    const model::Model model = model::build(architecture);  // the client sends the weights
    local_ = std::make_unique<LocalTrainer>(
        plan, model, LocalWorkers{{worker_}, devices, &tracer_, 0, {}, std::move(config_.replicas), config_.bucket_bytes, config_.loss});
    plan_ = theirs;
    chunks_ = plan.chunks;
    fresh_ = true;
  }
  const CheckpointList checkpoints = checkpoints_.verify();
  Message answer{"planned", {{"checkpoints", checkpoints.whole}, {"damaged", checkpoints.damaged}}};
  if (!fresh_) answer.fields["steps_done"] = local_->steps_done();
  if (!fresh_ && local_->pending_step()) answer.fields["pending"] = *local_->pending_step();
  return answer;
}

Message WorkerParticipant::load(const Message& command) {
  local().start_over(command.tensors);
  fresh_ = false;
  return {"loaded"};
}

Message WorkerParticipant::restore(const Message& command) {
  local().restore(checkpoints_.load(field_of<std::uint64_t>(command, "step")));
  fresh_ = false;
  return {"restored"};
}

Message WorkerParticipant::connect(const Message& command) {
  if (fresh_) throw std::logic_error("no weights were given yet");
  const auto attempt = field_of<std::uint64_t>(command, "attempt");
  const auto addresses = field_of<std::vector<std::string>>(command, "addresses");
  const auto channel = [&](int cut, int peer) {
    const auto index = static_cast<std::size_t>(peer) - 1;  // worker 0 is the client, which has no address
    return config_.open_channel({cut, worker_, peer, peer > 0 && index < addresses.size() ? addresses[index] : "", attempt});
  };
  local().connect(channel, config_.timeout);
  return {"connected"};
}

Message WorkerParticipant::step(const Message& command) {
  const StepCommand head = read_step_command(command);
  if (head.id.chunks > chunks_) {
    throw std::invalid_argument(fmt::format("a step of {} micro-batches, but {} are planned", head.id.chunks, chunks_));
  }
  if (!local().connected()) throw transport::ConnectionLost("the data channels to the other processes are not open");
  const auto result = head.training ? local().forward_backward(head.batch, head.id) : local().evaluate(head.batch, head.id);
  Message answer{"stepped", {{"result", to_json(result)}}};
  if (result.predictions.defined()) answer.tensors["predictions"] = result.predictions;
  if (head.training && head.norms && !result.non_finite) answer.fields["norms"] = local().squared_gradient_norms();
  return answer;
}

Message WorkerParticipant::commit(const Message& command) {
  local().commit(field_of<std::uint64_t>(command, "step"), update_of(command));
  return {"committed", {{"drain", config_.drain != nullptr && *config_.drain}}};
}

Message WorkerParticipant::save() {
  checkpoints_.save(local().checkpoint());
  return {"saved"};
}

Message WorkerParticipant::weights() { return {"weights", json::object(), local().weights()}; }

Message WorkerParticipant::clock() const { return {"clock", {{"now", tracer_.now()}}}; }

Message WorkerParticipant::timeline() const { return {"timeline", {{"events", timeline_json(tracer_)}}}; }

Message WorkerParticipant::end() {
  if (!config_.keep_checkpoints) {
    if (const auto removed = remove_tree(config_.checkpoints); !removed) throw std::runtime_error(removed.error().message);
  }
  ended_ = true;
  return {"ended"};
}

Message WorkerParticipant::leave() {
  ended_ = true;
  return {"left"};
}

void WorkerParticipant::disconnect() {
  if (local_) local_->disconnect();
}

void handle_commands(transport::Link& client, Participant& participant, transport::Timeout idle) {
  while (!participant.ended()) {
    const auto command = read_message(client.recv(idle));
    const Message answer = command ? participant.handle(command.value()) : failed(command.error().text(), false);
    try {
      client.send(to_bytes(answer));
    } catch (const transport::ConnectionLost&) {
      if (!participant.ended()) throw;  // a client that has the last answer is gone before its link says so
    }
  }
}

}  // namespace epipe::train
