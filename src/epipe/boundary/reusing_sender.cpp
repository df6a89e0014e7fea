#include "epipe/boundary/reusing_sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "epipe/base/clock.h"
#include "epipe/boundary/boundary_thread.h"
#include "epipe/boundary/reused_frames.h"

namespace epipe::boundary {

ReusingSender::ReusingSender(BoundaryConfig config, transport::Link& link, OnFailure on_failure)
    : config_(std::move(config)),
      link_(link),
      on_failure_(std::move(on_failure)),
      waiting_(config_.capacity),
      pool_(config_.codec_threads),
      encoder_(make_encoder(config_, pool_)),
      decoder_(make_decoder(config_, pool_)) {
  config_.codec = encoder_->spec();
  sending_ = std::thread([this] {
    const OwnStream stream(config_.device);
    run_until_closed([this] { send_next(); }, on_failure_);
    end();
  });
  receiving_ = std::thread([this] {
    run_until_closed([this] { recv_held(); }, on_failure_);
    end();
  });
}

ReusingSender::~ReusingSender() {
  close();
  join();
}

void ReusingSender::close() {
  waiting_.close();
  link_.close();
}

void ReusingSender::join() {
  if (sending_.joinable()) sending_.join();
  if (receiving_.joinable()) receiving_.join();
}

void ReusingSender::end() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
}

template <typename Condition>
void ReusingSender::wait_until(const Condition& condition, const char* what) const {
  std::unique_lock lock(mutex_);
  const auto done = [&] { return over_ || condition(); };
  if (config_.timeout == transport::kNoTimeout) {
    changed_.wait(lock, done);
  } else if (!changed_.wait_for(lock, config_.timeout, done)) {
    throw transport::TimedOut(fmt::format("cut {}: the peer {} for {} s", config_.cut, what, seconds(config_.timeout)));
  }
  if (!condition()) throw Closed();
}

bool ReusingSender::holds(const SampleKey& key) const {
  wait_until([this] { return listed_; }, "did not say which activations it keeps");
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(key.sample);
  return found != held_.end() && found->second == key.tag;
}

void ReusingSender::finish_encoding() const {
  wait_until([this] { return unencoded_ == 0; }, "took nothing");
}

void ReusingSender::send(MicroBatchTensors micro_batch) {
  std::vector<torch::Tensor> computed;
  for (const auto& x : micro_batch.tensors) {
    if (x.defined()) computed.push_back(x);
  }
  micro_batch.ready = StreamEvent(computed);
  {
    const std::lock_guard lock(mutex_);
    ++unencoded_;
    traffic_.send_queue_depth = std::max(traffic_.send_queue_depth, static_cast<std::uint64_t>(unencoded_));
  }
  if (config_.timeout == transport::kNoTimeout) return waiting_.push(std::move(micro_batch));
  if (!waiting_.push_within(micro_batch, config_.timeout)) {
    throw transport::TimedOut(fmt::format("{}: the peer took nothing for {} s; it is stalled, or the link is too slow for --timeout",
                                          describe(config_, micro_batch.step, micro_batch.index), seconds(config_.timeout)));
  }
}

void ReusingSender::send_next() {
  const MicroBatchTensors micro_batch = waiting_.pop();
  ReusedMicroBatch message{micro_batch.step, micro_batch.index, {}};
  std::vector<Bytes> frames(micro_batch.tensors.size());  // the message has views into them
  Traffic traffic;
  for (std::size_t i = 0; i < micro_batch.tensors.size(); ++i) {
    const torch::Tensor& x = micro_batch.tensors[i];
    if (x.defined()) {
      micro_batch.ready.take({x});
      const Span span(traffic.encode_seconds, config_.tracer, track_of(config_, false), "encode", micro_batch.step,
                      fmt::format("encode {}", micro_batch.index));
      frames[i] = encode(x.detach(), micro_batch);
    }
    message.samples.push_back({micro_batch.samples.at(i), frames[i]});
  }
  Bytes bytes = to_bytes(message);
  traffic.wire_bytes = bytes.size();
  {
    const std::lock_guard lock(mutex_);
    traffic_ += traffic;
    --unencoded_;
  }
  changed_.notify_all();
  link_.send(std::move(bytes));
}

// The tag of a reusable frame does not depend on the step.
Bytes ReusingSender::encode(const torch::Tensor& x, const MicroBatchTensors& micro_batch) {
  Bytes frame;
  const codec::FrameTag tag{0, 0, config_.cut, 0, 1, config_.direction};
  const auto result = codec::encode_frame(*encoder_, x, tag, {.frozen = true}, &pool_, frame);
  if (!result)
    throw std::runtime_error(fmt::format("{}: {}", describe(config_, micro_batch.step, micro_batch.index), result.error().text()));
  if (micro_batch.measure_error) measure(x, frame);
  return frame;
}

void ReusingSender::measure(const torch::Tensor& x, ByteView frame) {
  const auto own = wire::read_own_frame(frame);
  const auto decoded = own ? decoder_.decode(own.value()) : Result<torch::Tensor>(own.error());
  if (!decoded) throw std::runtime_error("a frame of our own does not decode: " + decoded.error().text());
  const auto exact = x.to(torch::kFloat64);
  const double error = (exact - decoded.value().to(x.device(), torch::kFloat64)).square().sum().item<double>();
  const double signal = exact.square().sum().item<double>();
  const std::lock_guard lock(mutex_);
  traffic_.error_energy += error;
  traffic_.signal_energy += signal;
}

void ReusingSender::recv_held() {
  const Bytes bytes = link_.recv(transport::kNoTimeout);
  const auto held = read_held(bytes);
  if (!held) throw std::runtime_error(fmt::format("cut {}: {}", config_.cut, held.error().text()));
  {
    const std::lock_guard lock(mutex_);
    for (const SampleKey& key : held.value()) {
      if (held_.size() < FrameStore::kMaxSamples) held_[key.sample] = key.tag;
    }
    listed_ = true;
    traffic_.wire_bytes += bytes.size();
  }
  changed_.notify_all();
}

Traffic ReusingSender::take_traffic() {
  const std::lock_guard lock(mutex_);
  return std::exchange(traffic_, {});
}

}  // namespace epipe::boundary
