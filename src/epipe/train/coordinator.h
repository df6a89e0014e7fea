#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "epipe/train/checkpoint.h"
#include "epipe/train/local_trainer.h"
#include "epipe/train/peer.h"
#include "epipe/train/step_command.h"

namespace epipe::train {

struct CoordinatorConfig {
  nlohmann::json shared_plan;                                         // what the other processes are told
  std::string checkpoints;                                            // folder of the client's own
  transport::Timeout timeout = transport::kNoTimeout;                 // with another process within a step
  bool resume = false;                                                // begin from the newest checkpoint that all processes have whole
  std::vector<std::string> parameter_order;                           // of the model, for sums over all parameters
  double clip = 0;                                                    // largest norm of the gradient over all processes; 0: none
  bool was_over = false;                                              // the run has written its weights: servers may have forgotten it
  std::function<void(std::string)> note = [](const std::string&) {};  // for people
};

// All processes of a run, led by the client: its own share and those of its peers. A step is committed everywhere or nowhere. The other
// replicas are teams of their own, whose leaders are peers of the client and pass its commands on.
//
//   client   step -> all | own forward and backward | stepped <- all | commit -> all | own commit | step -> all | ... | committed <- all
//
// The next step does not wait for `committed`: a participant commits before it handles `step`, so only a loss has to know who has
// committed. When the client has all answers to `step`, the step is decided: whatever is lost afterwards, everybody will commit it.
// Anything that is lost before costs this step, which is done again. Calls throw ConnectionLost or TimedOut where recover() may help, and
// anything else where not.
class Coordinator {
 public:
  // Makes the whole model as a run starts from it.
  using InitialModel = std::function<model::Model()>;

  // `connector` is null when all workers are here. `local` and `connector` outlive the coordinator.
  Coordinator(const Plan& plan, LocalTrainer& share, PeerConnector* connector, CoordinatorConfig config, InitialModel initial);
  ~Coordinator();

  // Connects everybody, at the start and after a loss, and brings them to the same step: where they are, or the newest checkpoint that
  // all have whole, or the beginning; damaged ones are passed over with a note. Returns the steps that are done. Throws
  // std::runtime_error when a run is to be resumed and none of its checkpoints is with all processes, unless its first one was being
  // written.
  std::uint64_t connect();

  // What a leader's coordinator does when the client says so, instead of connect(): the checkpoints that all of it have, then where it
  // begins, then its data channels.
  CheckpointList common_checkpoints();
  void start_over();
  void restore(std::uint64_t step);
  void open_channels();

  // The batch is this replica's part; the result is that of all replicas.
  // `lr`: of the commit that follows.
  pipeline::StepResult forward_backward(const layer::Batch& batch, const pipeline::StepId& id, double lr);
  // Everybody applies the step, or everybody skips it. Returns when that is done here and everybody was told; a loss shows in the next
  // call. Throws std::runtime_error when so many steps are skipped that none will succeed.
  void commit(std::uint64_t step, double lr) { commit(step, decide(lr)); }
  void commit(std::uint64_t step, const Update& update);
  pipeline::StepResult evaluate(const layer::Batch& batch, const pipeline::StepId& id);

  // A checkpoint of every process.
  void save();
  // Whether a peer asked for an end, with an answer that has arrived: its operator stops it.
  bool draining() const { return draining_; }
  // The weights of all processes.
  NamedTensors weights();
  // What the peers did when, by the clock of `own`; without those that are lost.
  std::vector<Tracer::Event> timelines(const Tracer& own);
  // Tells the peers that the run is over and its checkpoints are no longer needed, or that it will be continued from them.
  void end() { say_goodbye("end", "ended"); }
  void leave() { say_goodbye("leave", "left"); }

 private:
  struct Standing;
  struct Decision {
    std::uint64_t step;
    Update update;
  };
  pipeline::StepResult run(const StepCommand& head);
  pipeline::StepResult run_own(const StepCommand& head);
  bool knows_update() const;
  [[noreturn]] void explain(const std::exception_ptr& own, bool leaders_know);
  void add_peer(int worker, Peer::Role role);
  std::vector<Standing> ask_standings();
  void take_step(pipeline::StepResult& result, Peer& peer, const Message& answer, bool norms);
  bool can_continue(const std::vector<Standing>& standings) const;
  void finish_commit(const std::vector<Standing>& standings);
  void confirm_commit();
  double clock_offset(Peer& peer, const Tracer& own);
  void go_back(const std::vector<Standing>& standings);
  std::string damaged_checkpoints(const CheckpointList& own, const std::vector<Standing>& standings) const;
  [[noreturn]] void refuse_to_resume(const CheckpointList& own, const std::vector<Standing>& standings) const;
  double clip_scale(double loss_scale) const;
  Update decide(double lr) const;
  static Message commit_message(const Decision& decision);
  void close_peers();
  void say_goodbye(const std::string& command, const std::string& kind);
  template <typename Work>
  void for_all_answers(const std::string& kind, const Work& work);

  Plan plan_;
  LocalTrainer& local_;
  PeerConnector* connector_;
  CoordinatorConfig config_;
  InitialModel initial_;
  Checkpoints checkpoints_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::map<std::string, double> norms_;  // of the step under way, of the gradients as they are
  bool non_finite_ = false;              // its gradients hold NaN or Inf, here or there
  std::optional<Update> known_;          // its update, where that depends on nothing but the step
  std::optional<Decision> decision_;     // the last commit, until all have confirmed it
  std::uint64_t attempt_ = 0;
  bool started_ = false;  // the share holds the state of this run
  bool draining_ = false;
};

}  // namespace epipe::train
