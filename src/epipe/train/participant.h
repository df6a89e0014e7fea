#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "epipe/train/local_trainer.h"
#include "epipe/train/message.h"
#include "epipe/train/registry.h"
#include "epipe/transport/link.h"

namespace epipe::train {

// A data channel to another process that the client wants open.
struct ChannelRequest {
  int cut = 0;
  int worker = 0;             // here
  int peer = 0;               // there
  std::string address;        // of the peer, where the client gave one; nobody vouches for it
  std::uint64_t attempt = 0;  // counts the connections of the run
};

// What a participant's process offers to its client.
struct ParticipantConfig {
  const Registry* registry = nullptr;  // what it knows by name; outlives the participant
  // Looks at the client's plan for this worker, before anything is built from it: throws std::invalid_argument to refuse. May be empty.
  std::function<void(const nlohmann::json& plan, int worker)> admit;
  // This process's end of a data channel. Throws ConnectionLost or TimedOut when the other end does not come, std::invalid_argument to
  // refuse.
  std::function<std::unique_ptr<transport::Link>(const ChannelRequest&)> open_channel;
  std::string checkpoints;             // folder
  std::uint64_t checkpoint_bytes = 0;  // that they may take there; 0: no limit
  bool keep_checkpoints = false;       // also when the run has ended
  // Errors that name the folder come here, and the client is told all but its path; empty: the client may know it.
  std::function<void(const std::string& error)> log{};
  torch::Device device = torch::kCPU;                    // of its workers
  transport::Timeout timeout = std::chrono::minutes(2);  // with other processes within a step
  const std::atomic<bool>* drain = nullptr;              // when true, answers ask the client to save and leave
  std::unique_ptr<transport::Group> replicas{};          // its worker in all replicas; null: there is one
  std::size_t bucket_bytes = std::size_t{4} << 20;       // of gradients that replicas sum at once
  pipeline::Loss loss{};                                 // where the last stage is here; null: by the plan's data
};

// A process that another one leads.
class Participant {
 public:
  virtual ~Participant() = default;
  virtual Message handle(const Message& command) = 0;
  virtual bool ended() const = 0;
};

// The answer to a command: what `work` returns, or failed with what it throws.
Message answer_of(const std::function<Message()>& work);
// A field of a command. Throws std::invalid_argument.
template <typename T>
T field_of(const Message& command, const char* name) {
  try {
    return command.fields.at(name).get<T>();
  } catch (const nlohmann::json::exception&) {
    throw std::invalid_argument("the command " + command.kind + " has no proper " + name);
  }
}

// The decision that a command commit carries.
inline Update update_of(const Message& command) {
  return {field_of<double>(command, "lr"), field_of<double>(command, "scale"), field_of<bool>(command, "skip")};
}

// Handles the client of a run: holds the share of some workers and does what the client's commands say.
//
//   plan {plan, worker}         -> planned {steps_done, pending, checkpoints, damaged}   build the share, or find it as it was
//   load + weights              -> loaded                                       begin at step 0 from these weights
//   restore {step}              -> restored                                     go back to a checkpoint of this process
//   connect {attempt, addresses} -> connected                                    open the data channels to the other processes
//   step {...} + side inputs    -> stepped {result, norms}                      gradients of a batch; nothing changes yet
//   commit {step, lr, scale, skip} -> committed                                    once per step, however often it is said
//   save                        -> saved                                        a checkpoint
//   weights                     -> weights + tensors
//   clock                       -> clock {now}                                  of the timeline, which begins with the participant
//   timeline                    -> timeline {events}                            see timeline.h
//   end                         -> ended                                        the run is over and its checkpoints go
//   leave                       -> left                                         the client will come back some day
//
// A command that cannot be handle_checked is answered by failed {error, again}: `again` says that connecting again may help.
class WorkerParticipant final : public Participant {
 public:
  explicit WorkerParticipant(ParticipantConfig config);
  ~WorkerParticipant() override;

  Message handle(const Message& command) override;
  bool ended() const override { return ended_; }
  // What does not survive a lost client: the data channels to other processes.
  void disconnect();
  // Whether it has a state that a client could continue from.
  bool holds_run() const { return local_ != nullptr && !fresh_; }

 private:
  Message handle_checked(const Message& command);
  Message plan(const Message& command);
  Message load(const Message& command);
  Message restore(const Message& command);
  Message connect(const Message& command);
  Message step(const Message& command);
  Message commit(const Message& command);
  Message save();
  Message weights();
  Message clock() const;
  Message timeline() const;
  Message end();
  Message leave();
  LocalTrainer& local();
  void hide_folder(Message& answer) const;

  ParticipantConfig config_;
  Tracer tracer_;
  Checkpoints checkpoints_;
  nlohmann::json plan_;
  int chunks_ = 0;  // of the plan
  int worker_ = 0;
  std::unique_ptr<LocalTrainer> local_;  // null until a plan was given
  bool fresh_ = false;                   // the share has no weights yet
  bool ended_ = false;
};

// Handles what arrives until the run has ended. Throws ConnectionLost when the client is, TimedOut after `idle` without a command, Closed.
void handle_commands(transport::Link& client, Participant& participant, transport::Timeout idle);

}  // namespace epipe::train
