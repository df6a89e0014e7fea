#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "epipe/session/checkpoint.h"
#include "epipe/session/local_trainer.h"
#include "epipe/session/peer.h"
#include "epipe/session/peer_connector.h"

namespace epipe::session {

// The weights of one layer of the model.
using LayerWeights = std::function<NamedTensors(std::size_t layer)>;

struct Parameter {
  std::string name;
  std::size_t layer = 0;
};

// What the coordinator alone keeps between steps, as a part of its checkpoints.
class OwnState {
 public:
  virtual ~OwnState() = default;
  virtual NamedTensors state() const = 0;
  // Nothing: as a run begins.
  virtual void set_state(const NamedTensors& state) = 0;
};

// See audit.h.
struct AuditRequest {
  std::array<layer::Batch, 2> samples;       // a and b, equally many
  pipeline::StepId id;                       // epoch and step
  std::vector<pipeline::Rates> passes;       // those of the training, then one for each comparison
  std::vector<std::vector<double>> tried{};  // by 2 * cut + direction: rates to measure its tensors at
};
struct AuditOutcome {
  pipeline::StepResult step;                       // what it took
  int parts = 0;                                   // run one after the other
  std::vector<std::vector<AuditSums>> by_stage{};  // by pass: the gradients, then what each comparison finds
  std::vector<std::vector<double>> curves{};       // by 2 * cut + direction: relative errors at the tried rates; empty: nothing crossed
  std::vector<PassLosses> losses{};                // by pass
  bool non_finite = false;                         // the sums mean nothing
};

// What a link carries, as a probe of it found.
struct LinkMeasurement {
  double up = 0;          // bytes per second of payload, to the peer
  double down = 0;        // and from it
  double round_trip = 0;  // seconds of a small message and its reply
};

// Seconds that a probe took: the bytes up and a small reply, a small command and the bytes down, and a small message and its reply.
struct ProbeTimes {
  double up = 0;
  double down = 0;
  double round_trip = 0;
};
// What a link carries, by several probes with the same bytes.
LinkMeasurement link_rates(std::uint64_t bytes_up, std::uint64_t bytes_down, const std::vector<ProbeTimes>& probes);

struct CoordinatorConfig {
  nlohmann::json spec;                                 // of the run, for the participants
  std::string checkpoints;                             // folder of this process's own
  transport::Timeout timeout = transport::kNoTimeout;  // with another process within a step
  bool resume = false;                                 // begin from the newest checkpoint that all processes have whole
  std::vector<Parameter> parameter_order;              // of the model, for sums over all parameters
  double clip = 0;                                     // largest norm of the gradient over all processes; 0: none
  bool was_over = false;                               // the run has written its weights: servers may have forgotten it
  // The weights as a run begins, asked for layer by layer: nobody holds the whole model. A new source each time it begins.
  std::function<LayerWeights()> initial_weights;
  OwnState* own_state = nullptr;  // outlives the coordinator; null: it keeps nothing
  LayerWeights expected_weights;  // of one layer: names, shapes and types, without values (on the meta device); the trained want gradients
  std::function<void(std::string)> note = [](const std::string&) {};  // for people
};

// Decides for all processes of a run: its own workers and those of its peers. A step is committed everywhere or nowhere. The other
// replicas have coordinators of their own, which are peers of the first and pass its commands on.
//
//   coordinator   step -> all | own forward and backward | stepped <- all | commit -> all | own commit | step -> all | ... | committed <-
//   all
//
// The next step does not wait for `committed`: a participant commits before it handles `step`, so only a loss has to know who has
// committed. When the coordinator has all replies to `step`, the step is decided: whatever is lost afterwards, everybody will commit it.
// Anything that is lost before costs this step, which is done again. Calls throw ConnectionLost or TimedOut where connect() may help, and
// anything else where not.
class Coordinator {
 public:
  // `connector` is null when all workers are here; it outlives the coordinator.
  Coordinator(std::unique_ptr<LocalTrainer> local, PeerConnector* connector, CoordinatorConfig config);
  ~Coordinator();

  // Connects everybody, at the start and after a loss, and brings them to the same step: where they are, or the newest checkpoint that
  // all have whole, or the beginning; damaged ones are passed over with a note. Returns the steps that are done. Throws
  // std::runtime_error when a run is to be resumed and none of its checkpoints is with all processes, unless its first one was being
  // written.
  std::uint64_t connect();

  // What the coordinator of another replica does when the first one says so, instead of connect(): the checkpoints that all of its
  // processes have, then where it begins, then its data channels.
  CheckpointList common_checkpoints();
  void load(const LoadCommand& command);
  void restore(std::uint64_t step);
  void open_channels();

  // The batch is this replica's part; the result is that of all replicas.
  // `lr`: of the commit that follows.
  pipeline::StepResult forward_backward(const layer::Batch& batch, const pipeline::StepId& id, double lr);
  // With a delay, instead: forwards of `batch`, if there is one, beside backwards of the step before, if there was one, which is to be
  // committed next. The loss is that of `batch`; what was measured is of both.
  pipeline::StepResult overlapped_step(const layer::Batch* batch, const pipeline::StepId& id);
  // Everybody applies the step, or everybody skips it. Returns when that is done here and everybody was told; a loss shows in the next
  // call. Throws std::runtime_error when so many steps are skipped that none will succeed.
  void commit(std::uint64_t step, double lr) { commit(step, decide(lr)); }
  void commit(std::uint64_t step, const Update& update);
  pipeline::StepResult evaluate(const layer::Batch& batch, const pipeline::StepId& id);
  // With this replica's workers alone. Nothing changes anywhere but the gradients of a step that was not committed, which are gone.
  AuditOutcome audit(const AuditRequest& request);

  // A checkpoint of every process.
  void save();
  // Whether a peer asked for an end, with a reply that has arrived: its operator stops it.
  bool draining() const { return draining_; }
  // The weights of all layers, one after the other in the model's order, wherever they are; or those that are trained.
  void visit_weights(const std::function<void(const NamedTensors& layer)>& visit, bool trained_only = false);
  // Seconds from a small command to its reply, by worker, the fastest of some; 0 for those here.
  std::vector<double> round_trips();
  // Of the link to the first worker elsewhere, by probes with these bytes; between steps, when nothing else crosses it.
  LinkMeasurement probe_link(std::uint64_t bytes_up, std::uint64_t bytes_down);
  // What the peers did when, by the clock of `own`; without those that are lost.
  std::vector<Tracer::Event> timelines(const Tracer& own);
  // Tells the peers that the run is over and its checkpoints are no longer needed, or that it will be continued from them.
  void end() { send_to_all_and_wait<EndCommand>(); }
  void leave() { send_to_all_and_wait<LeaveCommand>(); }

  LocalTrainer& local() { return *local_; }
  std::size_t cuts() const { return local_->pipeline_config().cuts.size(); }
  std::size_t workers() const { return static_cast<std::size_t>(local_->pipeline_config().placement.workers()); }

 private:
  struct Decision {
    std::uint64_t step;
    Update update;
  };
  pipeline::StepResult run(const StepCommand& command);
  template <typename Expected>
  pipeline::StepResult explained(const std::function<pipeline::StepResult()>& work);
  pipeline::StepResult run_own(const StepCommand& command);
  void send_step(const StepCommand& command);
  bool knows_update() const;
  template <typename Expected>
  [[noreturn]] void explain(const std::exception_ptr& own, bool leaders_know);
  AuditCommand audit_part(const AuditRequest& request, std::size_t first) const;
  void send_audit(const AuditCommand& command);
  AuditPartResult audit_own(const AuditCommand& command);
  void take_audit(AuditOutcome& outcome, const AuditPartResult& part, const AuditCommand& command, const Peer* peer) const;
  std::vector<bool> stages_of(const Peer* peer) const;
  void set_own_state(const Checkpoint* checkpoint);
  void add_peer(int worker, Peer::Role role);
  std::vector<ConfigureReply> configure_all();
  void take_step(pipeline::StepResult& result, Peer& peer, StepReply reply, bool norms);
  bool can_continue(const std::vector<ConfigureReply>& peers) const;
  void finish_commit(const std::vector<ConfigureReply>& peers);
  void confirm_commit();
  double clock_offset(Peer& peer, const Tracer& own);
  double round_trip(Peer& peer, int questions);
  void start_over();
  bool runs(const Peer& peer, std::size_t layer) const { return peer.leads() || local_->worker_of_layer(layer) == peer.worker(); }
  std::size_t layers_of(const Peer& peer) const;
  std::vector<std::size_t> loading_order() const;
  void check_weights(const Peer& peer, std::size_t layer, const NamedTensors& weights, bool trained_only) const;
  void take_norms(const Peer& peer, const std::map<std::string, double>& norms);
  void go_back(const std::vector<ConfigureReply>& peers);
  std::string damaged_checkpoints(const CheckpointList& own, const std::vector<ConfigureReply>& peers) const;
  [[noreturn]] void refuse_to_resume(const CheckpointList& own, const std::vector<ConfigureReply>& peers) const;
  double clip_scale(double loss_scale) const;
  Update decide(double lr) const;
  void close_peers();
  template <typename Sent>
  void send_to_all_and_wait();
  template <typename Expected, typename Work>
  void for_all_replies(const Work& work) {
    for (const auto& peer : peers_) work(*peer, peer->recv<Expected>());
  }
  template <typename Expected>
  void wait_for_all() {
    for (const auto& peer : peers_) peer->recv<Expected>();
  }

  std::unique_ptr<LocalTrainer> local_;
  PeerConnector* connector_;
  CoordinatorConfig config_;
  Checkpoints checkpoints_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::map<std::string, double> norms_;  // of the step under way, of the gradients as they are
  bool non_finite_ = false;              // its gradients hold NaN or Inf, here or there
  std::optional<Update> known_;          // its update, where that depends on nothing but the step
  std::optional<Decision> decision_;     // the last commit, until all have confirmed it
  bool running_early_ = false;           // peers have been told to, and have not answered
  std::uint64_t attempt_ = 0;
  bool started_ = false;  // the local trainer holds the state of this run
  bool draining_ = false;
};

}  // namespace epipe::session
