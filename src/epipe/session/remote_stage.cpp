#include "epipe/session/remote_stage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "epipe/base/clock.h"
#include "epipe/base/queue.h"
#include "epipe/pipeline/encoder_state.h"
#include "epipe/transport/refused.h"

namespace epipe::session {
namespace {

using wire::Direction;

constexpr transport::Timeout kLastWords = std::chrono::seconds(2);  // a responding peer has sent its reason, or its last reply, by then

void require_finite(const torch::Tensor& x, const char* name) {
  if (x.numel() == 0) return;
  const auto [low, high] = torch::aminmax(x);
  if (std::isfinite(low.item<float>()) && std::isfinite(high.item<float>())) return;
  throw std::invalid_argument(
      fmt::format("{} holds NaN or Inf, which no codec carries; use a smaller learning rate, or look for it with "
                  "torch.autograd.set_detect_anomaly",
                  name));
}

}  // namespace

RemoteStage::RemoteStage(PeerConnector& connector, RemoteStageConfig config)
    : connector_(connector), config_(std::move(config)), checkpoints_(config_.checkpoints) {
  for (const pipeline::CutCodecs& codecs : config_.codecs) {
    if (codecs.forward != "auto" && codecs.backward != "auto") continue;
    throw std::invalid_argument(
        "the codec auto without a number needs audits of the whole network, which only `epipe train` runs; say bits per value, "
        "as in auto:2");
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  attempt_ = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
  require_same_run();
  try {
    connect();
  } catch (const transport::Refused& refused) {  // it runs, and may still be busy with this client's previous connection
    if (is_final(refused) || refused.why() == transport::Refusal::kUntrusted) throw;
    recover(refused.what());
  } catch (const transport::ConnectionLost& lost) {
    if (!peer_) throw;  // nobody took the connection
    recover(lost.what());
  }
}

RemoteStage::~RemoteStage() { close_channels(); }

// Before the server hears of this run: it would keep a session with these settings, and refuse the right ones.
void RemoteStage::require_same_run() const {
  if (config_.checkpoints.empty() || !config_.require_same_run) return;
  const auto steps = checkpoints_.verify().whole;
  if (!steps.empty()) config_.require_same_run(checkpoints_.load(steps.back()).config);
}

template <typename Work>
void RemoteStage::with_recovery(const Work& work) {
  require_open();
  while (true) {
    try {
      if (!peer_) connect();
      flush();
      return work();
    } catch (const transport::Refused& refused) {
      if (is_final(refused)) throw;
      recover(refused.what());
    } catch (const transport::ConnectionLost& lost) {
      recover(lost.what());
    } catch (const transport::TimedOut& late) {
      recover(late.what());
    } catch (const PeerFailed&) {
      close_channels();
      forget_step();
      throw;
    }
  }
}

void RemoteStage::flush() {
  for (; flushed_ < log_.size(); ++flushed_) send(log_[flushed_]);
}

void RemoteStage::send(const Sent& sent) {
  try {
    const auto* const forward = std::get_if<ForwardCommand>(&sent.command);
    if (forward != nullptr && forward->begins) set_encoders();
    peer_->send(sent.command);
    unanswered_.push_back(name_of(sent.command));
    ++commands_sent_;
    if (forward != nullptr) {
      cut(0).send(Direction::kForward, {forward->step, forward->micro_batch, !forward->training, false, {sent.tensor}});
      due_[0].push_back({forward->step, forward->micro_batch, commands_sent_});
    } else {
      const auto& backward = std::get<BackwardCommand>(sent.command);
      cut(1).send(Direction::kBackward, {backward.step, backward.micro_batch, false, false, {sent.tensor}});
      due_[1].push_back({backward.step, backward.micro_batch, commands_sent_});
    }
  } catch (const Closed&) {
    explain();
  }
}

// Activations of the stage come through the cut after it, gradients through the cut before it; each in the order of the commands.
void RemoteStage::take_next(Direction direction) {
  const bool forward = direction == Direction::kForward;
  auto& queue = due_[forward ? 0 : 1];
  const Due due = queue.front();
  std::vector<torch::Tensor> tensors;
  for (const Stopwatch watch; tensors.empty();) {
    try {
      tensors = cut(forward ? 1 : 0).recv(direction, due.step, due.micro_batch);
    } catch (const transport::TimedOut&) {
      config_.poll();
      if (watch.seconds() * 1000 > static_cast<double>(config_.timeout.count())) throw;
    } catch (const Closed&) {
      explain();
    } catch (const std::runtime_error& error) {
      throw PeerFailed(fmt::format("{} sent something else: {}", peer_->name(), error.what()));
    }
  }
  queue.pop_front();
  (forward ? traffic_[1].forward : traffic_[0].backward).values += static_cast<std::uint64_t>(tensors[0].numel());
  take_replies(due.command);
  const auto found = micro_batches_.find(due.micro_batch);
  if (due.step != steps_done_ || found == micro_batches_.end()) return;  // of a dropped step
  (forward ? found->second.output : found->second.gradient) = tensors.at(0);
}

void RemoteStage::take_all() {
  for (const auto direction : {Direction::kForward, Direction::kBackward}) {
    while (!due_[direction == Direction::kForward ? 0 : 1].empty()) take_next(direction);
  }
  take_replies(commands_sent_);
}

// Takes the replies to commands up to this number of the connection.
void RemoteStage::take_replies(std::uint64_t up_to) {
  while (!unanswered_.empty() && commands_sent_ - unanswered_.size() < up_to) {
    const std::string_view asked = unanswered_.front();
    if (asked == ForwardCommand::kName) peer_->recv<ForwardReply>();
    if (asked == BackwardCommand::kName) peer_->recv<BackwardReply>();
    if (asked == CommitCommand::kName) {
      peer_->recv<CommitReply>();
      decision_.reset();
    }
    unanswered_.pop_front();
  }
}

// When the server fails, tensors stop coming first; its replies say why. Otherwise the reason is the error that ended a thread of the
// cuts: a lost connection, or a tensor or frame that cannot be coded, which retrying would not change.
void RemoteStage::explain() {
  try {
    while (!unanswered_.empty()) {
      const Reply reply = unanswered_.front() == ForwardCommand::kName    ? Reply(peer_->recv<ForwardReply>(kLastWords))
                          : unanswered_.front() == BackwardCommand::kName ? Reply(peer_->recv<BackwardReply>(kLastWords))
                                                                          : Reply(peer_->recv<CommitReply>(kLastWords));
      if (std::holds_alternative<CommitReply>(reply)) decision_.reset();
      unanswered_.pop_front();
    }
  } catch (const PeerFailed&) {
    throw;
  } catch (const std::exception&) {
    // Lost as well: there is no better reason than our own.
  }
  const std::lock_guard lock(failure_mutex_);
  try {
    if (failure_) std::rethrow_exception(failure_);
  } catch (const transport::ConnectionLost&) {
    throw;
  } catch (const transport::TimedOut&) {
    throw;
  } catch (const Closed&) {
  } catch (const std::exception& error) {
    throw PeerFailed(error.what());
  }
  throw transport::ConnectionLost("the data channel was closed");
}

RemoteStage::MicroBatch& RemoteStage::find(std::uint32_t micro_batch) {
  const auto found = micro_batches_.find(micro_batch);
  if (found != micro_batches_.end()) return found->second;
  throw std::logic_error("this micro-batch belongs to an earlier step, which was committed, dropped, or lost with the server's memory");
}

void RemoteStage::require_open() const {
  if (closed_) throw std::logic_error("the stage is closed; make a new one");
}

void RemoteStage::require_between_steps(const char* call) const {
  if (begun_) throw std::logic_error(fmt::format("{} in the middle of a step; commit or drop it first", call));
}

std::uint32_t RemoteStage::forward(const torch::Tensor& x, bool training) {
  require_open();
  if (x.dim() == 0) throw std::invalid_argument("expected a tensor whose first dim counts the samples, got a scalar");
  require_finite(x, "the input of the stage");
  ForwardCommand command{steps_done_, next_number_++, training && !begun_, training, {}};
  const std::int64_t first = training ? next_sample_ : 0;
  for (std::int64_t i = 0; i < x.size(0); ++i) command.samples.push_back(first + i);
  if (training) next_sample_ += x.size(0);
  if (training) begun_ = true;
  const std::uint32_t number = command.micro_batch;
  micro_batches_[number].training = training;
  log_.push_back({std::move(command), x});
  with_recovery([] {});
  return number;
}

torch::Tensor RemoteStage::output(std::uint32_t micro_batch) {
  with_recovery([&] {
    while (!find(micro_batch).output.defined()) take_next(Direction::kForward);
  });
  MicroBatch& found = find(micro_batch);
  torch::Tensor y = found.output;
  if (found.training) return y;
  micro_batches_.erase(micro_batch);  // it is finished and need not be sent again
  const auto of_it = [&](const Sent& sent) {
    const auto* const forward = std::get_if<ForwardCommand>(&sent.command);
    return forward != nullptr && forward->micro_batch == micro_batch;
  };
  const auto at = std::find_if(log_.begin(), log_.end(), of_it);
  if (at != log_.end() && static_cast<std::size_t>(at - log_.begin()) < flushed_) --flushed_;
  if (at != log_.end()) log_.erase(at);
  return y;
}

void RemoteStage::backward(std::uint32_t micro_batch, const torch::Tensor& gradient) {
  require_open();
  MicroBatch& found = find(micro_batch);
  if (!found.training) throw std::logic_error("a forward in evaluation mode has no backward");
  if (found.backward_sent) throw std::logic_error("backward a second time: the server keeps a micro-batch until its first one");
  if (found.output.defined() && found.output.sizes() != gradient.sizes()) {
    throw std::invalid_argument(fmt::format("expected a gradient of shape [{}], as the output has, got [{}]",
                                            fmt::join(found.output.sizes(), ", "), fmt::join(gradient.sizes(), ", ")));
  }
  require_finite(gradient, "the gradient of the stage's output");
  found.backward_sent = true;
  log_.push_back({BackwardCommand{steps_done_, micro_batch}, gradient});
  with_recovery([] {});
}

torch::Tensor RemoteStage::gradient(std::uint32_t micro_batch) {
  if (!find(micro_batch).backward_sent) throw std::logic_error("there is no gradient before a backward");
  with_recovery([&] {
    while (!find(micro_batch).gradient.defined()) take_next(Direction::kBackward);
  });
  return find(micro_batch).gradient;
}

void RemoteStage::commit(double lr) {
  require_open();
  std::vector<std::uint32_t> without;
  for (const auto& [number, micro_batch] : micro_batches_) {
    if (micro_batch.training && !micro_batch.backward_sent) without.push_back(number);
  }
  if (!begun_) throw std::logic_error("a step without a backward: run forward and backward first");
  if (!without.empty()) {
    throw std::logic_error(fmt::format("a step before the backward of {} of its {} forwards; run their backward, or drop the step",
                                       without.size(), micro_batches_.size()));
  }
  codec::State encoders;
  with_recovery([&] {
    take_all();
    encoders = copy_of(pipeline::encoder_state(cuts_));
  });
  decision_ = {steps_done_, Update{lr, 1, false}};
  encoders_ = std::move(encoders);
  ++steps_done_;
  forget_step();
  const auto decided = *decision_;
  with_recovery([&] {
    if (!decision_) return;  // the server learned it over a new connection
    peer_->send(CommitCommand{decided.first, decided.second});
    unanswered_.push_back(CommitCommand::kName);
    ++commands_sent_;
  });
}

void RemoteStage::forget_step() {
  log_.clear();
  flushed_ = 0;
  micro_batches_.clear();
  next_sample_ = 0;
  begun_ = false;
}

void RemoteStage::discard() { forget_step(); }

void RemoteStage::save(ByteView own) {
  if (config_.checkpoints.empty()) throw std::logic_error("a stage without a run folder has no checkpoints");
  require_between_steps("save");
  Checkpoint checkpoint{steps_done_, {}, {}, copy_of(encoders_), config_.fingerprint};
  torch::Tensor bytes = torch::empty({static_cast<std::int64_t>(own.size())}, torch::kUInt8);
  if (!own.empty()) std::memcpy(bytes.data_ptr(), own.data(), own.size());
  checkpoint.model[kOwn] = bytes;
  with_recovery([&] {
    take_all();
    peer_->send(SaveCommand{});
    checkpoints_.save(checkpoint);
    peer_->recv<SaveReply>();
  });
}

NamedTensors RemoteStage::weights() {
  require_between_steps("weights");
  NamedTensors all;
  with_recovery([&] {
    all.clear();
    take_all();
    for (std::size_t layer = config_.first_layer; layer < config_.end_layer; ++layer) {
      peer_->send(WeightsCommand{layer});
      WeightsReply reply = peer_->recv<WeightsReply>();
      const NamedTensors expected = config_.expected_weights(layer);
      const auto fits = model::check_fits(reply.weights, expected);
      if (!fits) throw PeerFailed(fmt::format("{}: layer {}: {}", peer_->name(), layer, fits.error().message));
      for (auto& [name, tensor] : reply.weights) all[name] = tensor.to(expected.at(name).scalar_type());
    }
  });
  return all;
}

void RemoteStage::gather_traffic() {
  for (std::size_t j = 0; j < cuts_.size(); ++j) {
    traffic_[j].forward += cuts_[j]->take_traffic(Direction::kForward);
    traffic_[j].backward += cuts_[j]->take_traffic(Direction::kBackward);
  }
  traffic_[0].backward.wire_bytes += received_[0].exchange(0);
  traffic_[1].forward.wire_bytes += received_[1].exchange(0);
}

std::array<RemoteStage::CutTraffic, 2> RemoteStage::take_traffic() {
  gather_traffic();
  return std::exchange(traffic_, {});
}

// The server reads it once it no longer waits for a tensor.
void RemoteStage::close_with(const Command& command) {
  if (std::exchange(closed_, true)) return;
  try {
    if (peer_) {
      if (begun_ || !due_[0].empty() || !due_[1].empty()) {
        for (const auto& cut : cuts_) cut->close();
      }
      peer_->send(command);
      for (std::size_t left = unanswered_.size(); left > 0; --left) {
        try {
          peer_->recv<CommitReply>(kLastWords);
        } catch (const PeerFailed&) {                 // the reply to something else
        } catch (const transport::ConnectionLost&) {  // an action that its closed channels ended
        }
      }
      std::holds_alternative<EndCommand>(command) ? void(peer_->recv<EndReply>()) : void(peer_->recv<LeaveReply>());
    }
  } catch (const std::exception& error) {
    config_.note(fmt::format("the server was not told that the stage is closed: {}", error.what()));
  }
  close_channels();
}

}  // namespace epipe::session
