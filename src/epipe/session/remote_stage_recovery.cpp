// How a remote stage and its server agree on a step: at the start, and after a lost connection.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "epipe/base/clock.h"
#include "epipe/pipeline/encoder_state.h"
#include "epipe/session/remote_stage.h"

namespace epipe::session {
namespace {

using pipeline::Cut;
using pipeline::Side;
using wire::Direction;

constexpr int kServer = 1;                                // worker
constexpr std::size_t kCapacity = std::size_t{1} << 20U;  // tensors in transit: a call that sends never waits

// Counts received bytes.
class CountingLink final : public transport::Link {
 public:
  CountingLink(std::unique_ptr<transport::Link> link, std::atomic<std::uint64_t>& received) : link_(std::move(link)), received_(received) {}
  void send(Bytes message) override { link_->send(std::move(message)); }
  Bytes recv(transport::Timeout timeout) override {
    Bytes message = link_->recv(timeout);
    received_ += message.size();
    return message;
  }
  void close() override { link_->close(); }

 private:
  std::unique_ptr<transport::Link> link_;
  std::atomic<std::uint64_t>& received_;
};

}  // namespace

codec::State RemoteStage::copy_of(const codec::State& state) {
  codec::State copy;
  for (const auto& [name, tensor] : state) copy[name] = tensor.clone();
  return copy;
}

void RemoteStage::close_channels() {
  for (const auto& cut : cuts_) cut->close();
  for (const auto& cut : cuts_) cut->join();
  gather_traffic();
  cuts_.clear();
  if (peer_) peer_->close();
  peer_.reset();
  for (auto& due : due_) due.clear();
  unanswered_.clear();
  commands_sent_ = 0;
  flushed_ = 0;
}

void RemoteStage::connect() {
  close_channels();
  peer_ =
      std::make_unique<Peer>(kServer, Peer::Role::kWorker, connector_.name(kServer), connector_.command_channel(kServer), config_.timeout);
  peer_->send(ConfigureCommand{config_.spec, kServer});
  const auto reply = peer_->recv<ConfigureReply>();
  bool rolled_back = false;
  const std::uint64_t steps_before = steps_done_;
  if (!can_continue(reply)) {
    rolled_back = go_back(reply);
  } else if (*reply.steps_done != steps_done_) {
    peer_->send(CommitCommand{decision_->first, decision_->second});
    peer_->recv<CommitReply>();
  }
  decision_.reset();
  started_ = true;
  open_channels();
  if (!rolled_back) return;
  forget_step();
  throw RolledBack(
      fmt::format("{} lost its memory: {} steps were done, and the newest checkpoint that both sides have is of step {}; load "
                  "what was saved with it and go on from there",
                  peer_->name(), steps_before, steps_done_));
}

// The server did everything the client decided, except perhaps the last commit, whose gradients it still has.
bool RemoteStage::can_continue(const ConfigureReply& reply) const {
  if (!started_ || !reply.steps_done) return false;
  if (*reply.steps_done == steps_done_) return true;
  return decision_ && decision_->first == *reply.steps_done && reply.pending == decision_->first;
}

// Returns whether that is a different step from the client's.
bool RemoteStage::go_back(const ConfigureReply& reply) {
  const CheckpointList own = config_.checkpoints.empty() ? CheckpointList{} : checkpoints_.verify();
  for (auto step = own.whole.rbegin(); step != own.whole.rend(); ++step) {
    const auto& theirs = reply.checkpoints.whole;
    if (std::find(theirs.begin(), theirs.end(), *step) == theirs.end()) continue;
    const bool elsewhere = started_ && *step != steps_done_;
    restore(*step);
    return elsewhere;
  }
  if (started_ && steps_done_ > 0) {
    throw PeerFailed(
        fmt::format("{} lost its memory after step {}, and no checkpoint is with both sides; begin anew, and save now and then",
                    peer_->name(), steps_done_));
  }
  if (!started_ && (!own.whole.empty() || !own.damaged.empty())) {
    throw PeerFailed(
        fmt::format("cannot continue: {} has no checkpoint of a step that is also here (of step {}); begin anew in another folder",
                    peer_->name(), fmt::join(own.whole, " and ")));
  }
  start_over();
  return false;
}

void RemoteStage::restore(std::uint64_t step) {
  peer_->send(RestoreCommand{step});
  Checkpoint checkpoint = checkpoints_.load(step);
  peer_->recv<RestoreReply>();
  steps_done_ = step;
  encoders_ = std::move(checkpoint.encoders);
  saved_.clear();
  const auto own = checkpoint.model.find(kOwn);
  if (own == checkpoint.model.end() || own->second.scalar_type() != torch::kUInt8) return;
  const torch::Tensor bytes = own->second.contiguous();
  append_bytes(saved_, std::as_bytes(std::span(bytes.data_ptr<std::uint8_t>(), static_cast<std::size_t>(bytes.numel()))));
}

void RemoteStage::start_over() {
  const LayerWeights initial = config_.initial_weights();
  for (std::size_t layer = config_.first_layer; layer < config_.end_layer; ++layer) {
    peer_->send(LoadCommand{layer, layer + 1 == config_.end_layer, initial(layer)});
    peer_->recv<LoadReply>();
  }
  steps_done_ = 0;
  encoders_.clear();
}

void RemoteStage::open_channels() {
  ++attempt_;
  {
    const std::lock_guard lock(failure_mutex_);
    failure_ = nullptr;
  }
  peer_->send(OpenChannelsCommand{attempt_, connector_.addresses()});
  const auto on_failure = [this](const std::exception_ptr& error) {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) failure_ = error;
    for (const auto& cut : cuts_) cut->close();
  };
  for (std::size_t j = 0; j < config_.codecs.size(); ++j) {
    Cut::Config made;
    made.forward = config_.codecs[j].forward;
    made.backward = config_.codecs[j].backward;
    made.index = static_cast<std::uint16_t>(j);
    made.capacity = kCapacity;
    made.timeout = kPoll;
    auto link = std::make_unique<CountingLink>(connector_.data_channel(static_cast<int>(j), kServer, attempt_), received_[j]);
    auto cut = Cut::to_peer(made, j == 0 ? Side::kEarlier : Side::kLater, std::move(link), on_failure);
    const std::lock_guard lock(failure_mutex_);
    if (failure_) cut->close();
    cuts_.push_back(std::move(cut));
  }
  peer_->recv<OpenChannelsReply>();
  set_encoders();
}

// Sets them to their state at the last commit. Encoders of a dropped step may still be running.
void RemoteStage::set_encoders() {
  for (const Stopwatch watch; true;) {
    try {
      return pipeline::set_encoder_state(cuts_, copy_of(encoders_));
    } catch (const transport::TimedOut&) {
      config_.poll();
      if (watch.seconds() * 1000 > static_cast<double>(config_.timeout.count())) throw;
    }
  }
}

void RemoteStage::recover(const std::string& reason) {
  const bool reconnecting = started_;  // otherwise it was not connected yet, perhaps because the server still ends an earlier session
  if (reconnecting) config_.note(fmt::format("lost after step {}: {}; connecting again", steps_done_, reason));
  close_channels();
  std::string last = reason;
  const Stopwatch watch;
  const double limit = static_cast<double>(config_.timeout.count()) / 1000;
  for (auto pause = kPoll; watch.seconds() < limit; pause = std::min(2 * pause, transport::Timeout(2000))) {
    const Stopwatch pausing;
    while (pausing.seconds() * 1000 < static_cast<double>(pause.count())) {
      std::this_thread::sleep_for(kPoll / 2);
      config_.poll();
    }
    try {
      connect();
      if (reconnecting) config_.note(fmt::format("connected again, going on after step {}", steps_done_));
      return;
    } catch (const transport::Refused& refused) {
      if (is_final(refused)) throw;
      last = refused.what();
    } catch (const transport::ConnectionLost& lost) {
      last = lost.what();
    } catch (const transport::TimedOut& late) {
      last = late.what();
    }
  }
  close_channels();
  throw transport::ConnectionLost(fmt::format("gave up after {:.0f} s: {}", watch.seconds(), last));
}

}  // namespace epipe::session
