#include "epipe/boundary/sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "epipe/base/clock.h"
#include "epipe/boundary/boundary_thread.h"

namespace epipe::boundary {
namespace {

constexpr std::size_t kMaxParts = 255;

void add_error(const torch::Tensor& x, const torch::Tensor& decoded, Traffic& traffic) {
  const auto exact = x.to(torch::kFloat64);
  traffic.error_energy = (exact - decoded.to(x.device(), torch::kFloat64)).square().sum().item<double>();
  traffic.signal_energy = exact.square().sum().item<double>();
}

}  // namespace

Sender::Sender(BoundaryConfig config, transport::Link& link, OnFailure on_failure)
    : config_(std::move(config)),
      link_(link),
      on_failure_(std::move(on_failure)),
      waiting_(config_.capacity),
      pool_(config_.codec_threads),
      decoder_(make_decoder(config_, pool_)) {
  encoders_.push_back(make_encoder(config_, pool_));  // so that a wrong spec fails here, not in the thread
  config_.codec = encoders_[0]->spec();
  thread_ = std::thread([this] { run(); });
}

Sender::~Sender() {
  close();
  join();
}

void Sender::join() {
  if (thread_.joinable()) thread_.join();
}

void Sender::close() {
  waiting_.close();
  link_.close();
  if (config_.on_device) config_.on_device->close();
}

void Sender::run() {
  const OwnStream stream(config_.device);
  run_until_closed([this] { encode_and_send(waiting_.pop()); }, on_failure_);
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  encoded_.notify_all();
}

void Sender::count(int micro_batches) {
  {
    const std::lock_guard lock(mutex_);
    unencoded_ += micro_batches;
    traffic_.send_queue_depth = std::max(traffic_.send_queue_depth, static_cast<std::uint64_t>(unencoded_));
  }
  encoded_.notify_all();
}

std::unique_lock<std::mutex> Sender::lock_when_idle() const {
  std::unique_lock lock(mutex_);
  const auto idle = [this] { return over_ || unencoded_ == 0; };
  if (config_.timeout == transport::kNoTimeout) {
    encoded_.wait(lock, idle);
  } else if (!encoded_.wait_for(lock, config_.timeout, idle)) {
    throw transport::TimedOut(fmt::format("cut {}: the peer took nothing for {} s", config_.cut, seconds(config_.timeout)));
  }
  return lock;
}

void Sender::finish_encoding() {
  {
    const auto lock = lock_when_idle();
    if (unencoded_ != 0) throw Closed();
  }
  check_encoded();
}

// One wait for all of them.
void Sender::check_encoded() {
  const std::lock_guard checking(checking_);
  std::vector<Unchecked> all;
  {
    const std::lock_guard lock(mutex_);
    all = unchecked_;
  }
  if (all.empty()) return;
  std::vector<torch::Tensor> faults;
  for (const Unchecked& one : all) {
    one.ready.take({one.fault});
    faults.push_back(one.fault);
  }
  const torch::Tensor found = torch::cat(faults).cpu();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (found.data_ptr<std::int32_t>()[i] == 0) continue;
    throw std::runtime_error(fmt::format("{}: the tensor holds NaN, Inf or values beyond what {} represents; expected finite values",
                                         describe(config_, all[i].step, all[i].micro_batch), config_.codec));
  }
  const std::lock_guard lock(mutex_);
  unchecked_.erase(unchecked_.begin(), unchecked_.begin() + static_cast<std::ptrdiff_t>(all.size()));
}

void Sender::send(MicroBatchTensors micro_batch) {
  micro_batch.ready = StreamEvent(micro_batch.tensors);
  count(1);
  if (config_.timeout == transport::kNoTimeout) return waiting_.push(std::move(micro_batch));
  if (!waiting_.push_within(micro_batch, config_.timeout)) {
    throw transport::TimedOut(fmt::format("{}: the peer took nothing for {} s; it is stalled, or the link is too slow for --timeout",
                                          describe(config_, micro_batch.step, micro_batch.index), seconds(config_.timeout)));
  }
}

codec::Codec& Sender::encoder(std::size_t part) {
  while (encoders_.size() <= part) encoders_.push_back(make_encoder(config_, pool_));
  return *encoders_[part];
}

// Encoders go on in place, so what is remembered is a copy.
void Sender::remember_state(const MicroBatchTensors& micro_batch) {
  if (!config_.steps_overlap || micro_batch.frozen || newest_step_ == micro_batch.step) return;
  newest_step_ = micro_batch.step;
  before_newest_ = states();
  for (auto& state : before_newest_) {
    for (auto& [name, tensor] : state) tensor = tensor.clone();
  }
}

void Sender::encode_and_send(const MicroBatchTensors& micro_batch) {
  remember_state(micro_batch);
  if (micro_batch.tensors.empty()) return count(-1);
  if (micro_batch.tensors.size() > kMaxParts) throw std::runtime_error(fmt::format("a cut carries at most {} tensors", kMaxParts));
  micro_batch.ready.take(micro_batch.tensors);
  for (std::size_t part = 0; part < micro_batch.tensors.size(); ++part) {
    const torch::Tensor x = micro_batch.tensors[part].detach();
    const codec::FrameTag tag{micro_batch.step,
                              micro_batch.index,
                              config_.cut,
                              static_cast<std::uint8_t>(part),
                              static_cast<std::uint8_t>(micro_batch.tensors.size()),
                              config_.direction};
    if (!micro_batch.try_rates.empty()) try_rates(x, part, micro_batch, tag);
    Frame frame = encode(x, part, micro_batch, tag);
    if (part + 1 == micro_batch.tensors.size()) count(-1);
    double sending = 0;
    const Span span(sending, config_.tracer, track_of(config_, false), "send", micro_batch.step, fmt::format("send {}", micro_batch.index));
    if (config_.on_device) {
      config_.on_device->push(std::move(frame));
    } else {
      link_.send(std::get<Bytes>(std::move(frame)));
    }
  }
}

Frame Sender::encode(const torch::Tensor& x, std::size_t part, const MicroBatchTensors& micro_batch, const codec::FrameTag& tag) {
  Frame frame;
  Traffic traffic;
  {
    const Span span(traffic.encode_seconds, config_.tracer, track_of(config_, false), "encode", micro_batch.step,
                    fmt::format("encode {}", micro_batch.index));
    frame = encode_frame(x, part, micro_batch, tag);
  }
  traffic.values = static_cast<std::uint64_t>(x.numel());
  describe_frame(x, frame, micro_batch.measure_error, traffic);
  add(traffic);
  return frame;
}

void Sender::describe_frame(const torch::Tensor& x, const Frame& frame, bool measure_error, Traffic& traffic) const {
  if (const auto* const on_device = std::get_if<FrameOnDevice>(&frame)) {
    traffic.wire_bytes = on_device->frame.wire_bytes();
    traffic.form = codec::chosen_form(on_device->frame);
    if (measure_error) add_error(x, decoder_.decode(on_device->frame), traffic);
    return;
  }
  const Bytes& bytes = std::get<Bytes>(frame);
  traffic.wire_bytes = bytes.size();
  const auto own = wire::read_own_frame(bytes);
  if (!own) throw std::logic_error("a frame of our own cannot be read: " + own.error().text());
  traffic.form = codec::chosen_form(own.value());
  if (measure_error) measure(x, own.value(), traffic);
}

void Sender::add(const Traffic& traffic) {
  const std::lock_guard lock(mutex_);
  traffic_ += traffic;
}

Frame Sender::encode_frame(const torch::Tensor& x, std::size_t part, const MicroBatchTensors& micro_batch, const codec::FrameTag& tag) {
  if (config_.on_device) {
    auto frame = codec::encode_device_frame(encoder(part), x, tag, {micro_batch.frozen, micro_batch.rate});
    if (frame && config_.flag_non_finite) frame = codec::settled(std::move(*frame));
    if (frame) {
      const StreamEvent ready({frame->payload.bytes});
      if (const torch::Tensor fault = frame->payload.fault; fault.defined()) {
        const std::lock_guard lock(mutex_);
        unchecked_.push_back({micro_batch.step, micro_batch.index, fault, ready});
      }
      return FrameOnDevice{std::move(*frame), ready};
    }
  }
  return encode_bytes(x, part, micro_batch, tag);
}

Bytes Sender::encode_bytes(const torch::Tensor& x, std::size_t part, const MicroBatchTensors& micro_batch, const codec::FrameTag& tag) {
  Bytes out;
  const auto result = codec::encode_frame(encoder(part), x, tag, {micro_batch.frozen, micro_batch.rate}, &pool_, out);
  if (result) return out;
  const ErrorCode code = result.error().code;
  if (config_.flag_non_finite && (code == ErrorCode::kNonFinite || code == ErrorCode::kOutOfRange)) {
    codec::encode_non_finite(encoder(part), x, tag, out);
    return out;
  }
  throw std::runtime_error(fmt::format("{}: {}", describe(config_, micro_batch.step, micro_batch.index), result.error().text()));
}

void Sender::measure(const torch::Tensor& x, const wire::FrameView& frame, Traffic& traffic) const {
  if (frame.header.non_finite) return;
  const auto decoded = decoder_.decode(frame);
  if (!decoded) throw std::runtime_error("a frame of our own does not decode: " + decoded.error().text());
  add_error(x, decoded.value(), traffic);
}

// Tensors that cannot be encoded are left out of the curve; encode() reports why, or flags them.
void Sender::try_rates(const torch::Tensor& x, std::size_t part, const MicroBatchTensors& micro_batch, const codec::FrameTag& tag) {
  for (std::size_t i = 0; i < micro_batch.try_rates.size(); ++i) {
    Bytes frame;
    Traffic traffic;
    if (!codec::encode_frame(encoder(part), x, tag, {/*frozen=*/true, micro_batch.try_rates[i]}, &pool_, frame)) return;
    const auto own = wire::read_own_frame(frame);
    if (own) measure(x, own.value(), traffic);
    const std::lock_guard lock(mutex_);
    if (curve_.size() <= i) curve_.resize(i + 1);
    curve_[i].rate = micro_batch.try_rates[i];
    curve_[i].error_energy += traffic.error_energy;
    curve_[i].signal_energy += traffic.signal_energy;
  }
}

std::vector<RatePoint> Sender::take_curve() {
  const std::lock_guard lock(mutex_);
  return std::exchange(curve_, {});
}

Traffic Sender::take_traffic() {
  const std::lock_guard lock(mutex_);
  return std::exchange(traffic_, {});
}

std::vector<codec::State> Sender::states() const {
  std::vector<codec::State> all;
  for (const auto& encoder : encoders_) all.push_back(encoder->state());
  return all;
}

std::vector<codec::State> Sender::state() const {
  const auto lock = lock_when_idle();
  return states();
}

std::vector<codec::State> Sender::state_before(std::uint64_t step) const {
  const auto lock = lock_when_idle();
  if (!newest_step_ || *newest_step_ < step) return states();
  if (*newest_step_ != step) throw std::logic_error(fmt::format("cut {}: tensors of step {} were sent", config_.cut, *newest_step_));
  return before_newest_;
}

void Sender::set_state(const std::vector<codec::State>& states) {
  const auto lock = lock_when_idle();
  newest_step_.reset();
  encoders_.clear();
  for (std::size_t part = 0; part < states.size(); ++part) encoder(part).set_state(states[part]);
}

}  // namespace epipe::boundary
