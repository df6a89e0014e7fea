#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "epipe/pipeline/pipeline.h"
#include "epipe/session/peer_connector.h"
#include "epipe/train/auto_rates.h"
#include "epipe/train/config.h"
#include "epipe/train/link_follower.h"
#include "epipe/train/registry.h"
#include "epipe/transport/group.h"

namespace epipe::train {

// One line of progress: means over the steps of the epoch so far, so that an epoch's last line is the epoch's.
struct Progress {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;  // done
  std::uint64_t total_steps = 0;
  double loss = 0;
  double accuracy = 0;
  double samples_per_s = 0;
  double cut_MBps = 0;  // on all cuts together
  double lr = 0;
  bool error_measured = false;                 // of the codecs, in this step
  const pipeline::StepResult* last = nullptr;  // of this step; while the call lasts
};

struct EpochResult {
  std::uint64_t epoch = 0;
  double loss = 0;
  double accuracy = 0;
  double val_loss = 0;
  double val_accuracy = 0;
  double seconds = 0;
  std::vector<std::pair<std::string, double>> val_metrics{};  // by name; the first is the one the data is judged by
};

enum class RunEvent : std::uint8_t { kConnectionLost, kConnectedAgain, kCheckpointSaved };

// Who watches. All calls come from the thread that trains.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_step(const Progress& progress) = 0;
  virtual void on_epoch(const EpochResult& epoch) = 0;
  virtual void on_note(const std::string& text) = 0;  // what a person should know: a head that starts fresh, a lost link, a way back
  virtual void on_event(RunEvent) {}                  // what a program counts
  virtual void on_audit(const AuditRecord&) {}        // with the step that it came before
  virtual void on_rate_change(const RateChange&) {}   // before its step
};

struct TrainResult {
  bool stopped = false;  // before the last step, by `stop` or by a server that is about to end
  std::uint64_t steps = 0;
  std::uint64_t new_steps = 0;  // of them, by this call; 0: a run that had come to its end before, and what follows is 0 as well
  std::uint64_t skipped = 0;    // of them, because of NaN or Inf under loss scaling
  double val_loss = 0;
  double val_accuracy = 0;
  double bytes_per_step = 0;  // on all cuts, both directions
  double samples_per_s = 0;   // in training steps, as the report has it: without validation and checkpoints
};

// Trains as configured and fills the run directory: config.toml, metrics.jsonl, trace.json, checkpoints/, model.safetensors. When `stop`
// becomes true the step under way is finished, saved, and the call returns. With `connector`, worker 0 is here and the others are there;
// what is lost on the way to them is done again. With several replicas, this is the client, and `replicas` is worker 0 of all of them.
// With `follow`, rates follow the link to the first of the others.
// Throws std::invalid_argument for a configuration that makes no sense, std::runtime_error for what goes wrong later.
TrainResult train(const Registry& registry, const TrainConfig& config, Observer& observer, const std::atomic<bool>& stop,
                  session::PeerConnector* connector = nullptr, std::unique_ptr<transport::Group> replicas = nullptr,
                  std::optional<FollowOptions> follow = std::nullopt);

// The validation result of saved weights (safetensors or a state dict).
EpochResult evaluate(const Registry& registry, const TrainConfig& config, const std::string& weights);

}  // namespace epipe::train
