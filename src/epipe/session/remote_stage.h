#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "epipe/pipeline/cut.h"
#include "epipe/session/coordinator.h"
#include "epipe/transport/refused.h"

namespace epipe::session {

struct RemoteStageConfig {
  nlohmann::json spec;                          // of the run, for the server: worker 0 has the first and last stage, worker 1 the middle
  std::array<pipeline::CutCodecs, 2> codecs{};  // for the cuts before and after the stage
  std::size_t first_layer = 0;                  // of the stage
  std::size_t end_layer = 0;                    // after its last one
  std::string checkpoints;                      // folder; empty: none are kept, and save() is refused
  std::string fingerprint{};                    // of the run, for its checkpoints
  std::function<void(const std::string&)> require_same_run{};
  transport::Timeout timeout = transport::kNoTimeout;  // without a sign of the server, and for trying to reconnect
  std::function<LayerWeights()> initial_weights{};     // at the start of the run
  LayerWeights expected_weights{};                     // names, shapes and types, without values
  std::function<void()> poll = [] {};                  // called periodically by calls that wait; an exception ends the wait
  std::function<void(const std::string&)> note = [](const std::string&) {};  // gets notes for the user
};

// The server lost committed steps. The stage is back at its newest checkpoint, and the caller must go back as well.
class RolledBack : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A stage on a server, for a loop that computes the parts before and after it. A step consists of any number of micro-batches:
//
//   i = forward(x)     x -> server                         y = output(i)        waits for y <- server
//   backward(i, g)     gradient of y -> server             h = gradient(i)      waits for the gradient of x <- server
//   commit(lr)         the server's optimizer steps, with the sum of the micro-batches' gradients
//
// A lost connection is reopened, and the micro-batches of the current step are sent again: the server computes the same results. Calls
// throw std::invalid_argument and std::logic_error for mistakes of the caller, PeerFailed with the server's reason, which drops the
// current step, RolledBack, and ConnectionLost or TimedOut if the server cannot be reached. One thread at a time.
class RemoteStage {
 public:
  // Connects; the connector, which reaches worker 1, outlives the stage. Continues from the newest common checkpoint if there is one.
  RemoteStage(PeerConnector& connector, RemoteStageConfig config);
  ~RemoteStage();
  RemoteStage(const RemoteStage&) = delete;
  RemoteStage& operator=(const RemoteStage&) = delete;

  // `training`: a backward follows. Returns the micro-batch's number, valid until the step ends. The tensor must not change afterwards.
  std::uint32_t forward(const torch::Tensor& x, bool training);
  torch::Tensor output(std::uint32_t micro_batch);
  // Call once for each training micro-batch.
  void backward(std::uint32_t micro_batch, const torch::Tensor& gradient);
  torch::Tensor gradient(std::uint32_t micro_batch);
  // Call when every training micro-batch has had its backward.
  void commit(double lr);
  // Drops the current step.
  void discard();

  std::uint64_t steps_done() const { return steps_done_; }
  // Saves a checkpoint on both sides; call between steps. `own`: the caller's data, returned by saved().
  void save(ByteView own);
  const Bytes& saved() const { return saved_; }  // from the checkpoint the stage continued from; empty: none
  NamedTensors weights();
  // The traffic since the last call, by cut.
  struct CutTraffic {
    boundary::Traffic forward;
    boundary::Traffic backward;
  };
  std::array<CutTraffic, 2> take_traffic();
  // end(): the run has ended and the server forgets it. leave(): it will be continued. Both close the stage.
  void end() { close_with(EndCommand{}); }
  void leave() { close_with(LeaveCommand{}); }
  bool closed() const { return closed_; }

 private:
  // A message of this step.
  struct Sent {
    Command command;
    torch::Tensor tensor;
  };
  struct MicroBatch {
    bool training = true;
    bool backward_sent = false;
    torch::Tensor output{};
    torch::Tensor gradient{};
  };
  // A tensor the server has yet to send, and the number of its command.
  struct Due {
    std::uint64_t step;
    std::uint32_t micro_batch;
    std::uint64_t command;
  };

  static constexpr transport::Timeout kPoll{100};
  static constexpr const char* kOwn = "own";  // name of the caller's data in a checkpoint

  static codec::State copy_of(const codec::State& state);
  template <typename Work>
  void with_recovery(const Work& work);
  void require_same_run() const;
  void recover(const std::string& reason);
  void connect();
  void close_channels();
  void open_channels();
  bool can_continue(const ConfigureReply& reply) const;
  bool go_back(const ConfigureReply& reply);
  void restore(std::uint64_t step);
  void start_over();
  void set_encoders();
  void flush();
  void send(const Sent& sent);
  void take_next(wire::Direction direction);
  void take_all();
  void take_replies(std::uint64_t up_to);
  [[noreturn]] void explain();
  MicroBatch& find(std::uint32_t micro_batch);
  void require_open() const;
  void require_between_steps(const char* call) const;
  void forget_step();
  void close_with(const Command& command);
  void gather_traffic();
  pipeline::Cut& cut(std::size_t j) { return *cuts_[j]; }

  PeerConnector& connector_;
  RemoteStageConfig config_;
  Checkpoints checkpoints_;
  std::unique_ptr<Peer> peer_;
  std::vector<std::unique_ptr<pipeline::Cut>> cuts_;
  std::mutex failure_mutex_;  // guards failure_, which the cuts' threads set
  std::exception_ptr failure_;
  std::uint64_t attempt_;

  std::uint64_t steps_done_ = 0;
  std::uint32_t next_number_ = 0;
  std::int64_t next_sample_ = 0;
  bool begun_ = false;  // a step with a training micro-batch
  std::map<std::uint32_t, MicroBatch> micro_batches_;
  std::vector<Sent> log_;  // of the current step, in order
  std::size_t flushed_ = 0;
  std::array<std::deque<Due>, 2> due_{};                      // by direction
  std::deque<std::string_view> unanswered_;                   // commands, the oldest first
  std::uint64_t commands_sent_ = 0;                           // on this connection
  std::optional<std::pair<std::uint64_t, Update>> decision_;  // the last commit, until it is confirmed
  codec::State encoders_;                                     // as of the last commit
  std::array<CutTraffic, 2> traffic_{};
  std::array<std::atomic<std::uint64_t>, 2> received_{};  // bytes from the server, by cut; only the receiving end counts them
  Bytes saved_;
  bool started_ = false;
  bool closed_ = false;
};

}  // namespace epipe::session
