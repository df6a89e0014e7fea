#include "epipe/boundary/reusing_receiver.h"

#include <fmt/format.h>

#include <stdexcept>

#include "epipe/base/clock.h"
#include "epipe/boundary/boundary_thread.h"

namespace epipe::boundary {

ReusingReceiver::ReusingReceiver(BoundaryConfig config, transport::Link& link, std::shared_ptr<FrameStore> store, OnFailure on_failure)
    : config_(std::move(config)),
      link_(link),
      store_(std::move(store)),
      on_failure_(std::move(on_failure)),
      pool_(config_.codec_threads),
      decoder_(make_decoder(config_, pool_)),
      arrived_(config_.capacity) {
  config_.codec = decoder_.spec();  // frames name their codec in this form
  thread_ = std::thread([this] {
    const OwnStream stream(config_.device);
    bool listed = false;
    run_until_closed(
        [&] {
          if (!std::exchange(listed, true)) link_.send(to_bytes(store_->held()));
          recv_next();
        },
        on_failure_);
  });
}

ReusingReceiver::~ReusingReceiver() {
  close();
  join();
}

void ReusingReceiver::close() {
  arrived_.close();
  link_.close();
}

void ReusingReceiver::join() {
  if (thread_.joinable()) thread_.join();
}

void ReusingReceiver::recv_next() {
  Traffic traffic;
  const Stopwatch receiving;
  const Bytes bytes = link_.recv(transport::kNoTimeout);
  traffic.recv_seconds = receiving.seconds();
  const auto message = read_reused(bytes);
  if (!message) throw std::runtime_error(fmt::format("cut {}: {}", config_.cut, message.error().text()));
  MicroBatchTensors micro_batch;
  micro_batch.step = message.value().step;
  micro_batch.index = message.value().index;
  std::vector<SampleKey> kept;
  {
    const Span span(traffic.decode_seconds, config_.tracer, track_of(config_, true), "decode", micro_batch.step,
                    fmt::format("decode {}", micro_batch.index));
    std::vector<torch::Tensor> samples;
    wire::Limits left = config_.limits;  // for all samples together
    for (const SampleFrame& sample : message.value().samples) {
      samples.push_back(decode(sample, left, kept));
      if (samples.back().sizes() != samples[0].sizes() || samples.back().scalar_type() != samples[0].scalar_type()) {
        throw std::runtime_error(
            fmt::format("{}: its samples differ in shape or type", describe(config_, micro_batch.step, micro_batch.index)));
      }
    }
    micro_batch.tensors = {torch::cat(samples)};
  }
  link_.send(to_bytes(kept));
  traffic.values = static_cast<std::uint64_t>(micro_batch.tensors[0].numel());
  micro_batch.ready = StreamEvent(micro_batch.tensors);
  {
    const std::lock_guard lock(mutex_);
    traffic_ += traffic;
  }
  arrived_.push(std::move(micro_batch));
  note_depth(arrived_, mutex_, traffic_);
}

// If a frame that just arrived cannot be decoded, the sender is at fault; if a stored one cannot, we are.
torch::Tensor ReusingReceiver::decode(const SampleFrame& sample, wire::Limits& left, std::vector<SampleKey>& kept) {
  const bool arrived = !sample.frame.empty();
  const std::optional<Bytes> found = arrived ? std::nullopt : store_->find(sample.key);
  auto x = decode_frame(found ? ByteView(*found) : sample.frame, left);
  if (!x && arrived) throw std::runtime_error(fmt::format("cut {}: {}", config_.cut, x.error().text()));
  if (!x) {
    store_->forget(sample.key.sample);
    throw transport::ConnectionLost(
        fmt::format("cut {}: the activations of a sample are not here, or damaged; they are asked for again", config_.cut));
  }
  if (arrived && store_->keep(sample.key, sample.frame)) kept.push_back(sample.key);
  left.max_values -= static_cast<std::uint64_t>(x.value().numel());
  return std::move(x).value();
}

Result<torch::Tensor> ReusingReceiver::decode_frame(ByteView bytes, const wire::Limits& left) const {
  const auto frame = wire::read_frame(bytes, left, &pool_);
  if (!frame) return frame.error();
  const wire::FrameHeader& header = frame.value().header;
  const bool fits = header.cut == config_.cut && header.direction == config_.direction && header.parts == 1 && !header.non_finite &&
                    header.codec == config_.codec && !header.tensor.dims.empty() && header.tensor.dims[0] == 1;
  if (!fits) {
    return Error{ErrorCode::kBadHeader,
                 fmt::format("expected one sample by {}, got another frame by {} for cut {}", config_.codec, header.codec, header.cut)};
  }
  return decoder_.decode(frame.value());
}

std::vector<torch::Tensor> ReusingReceiver::recv(std::uint64_t step, std::uint32_t micro_batch) {
  std::optional<MicroBatchTensors> got;
  if (config_.timeout == transport::kNoTimeout) got = arrived_.pop();
  if (!got) got = arrived_.pop_within(config_.timeout);
  if (!got) {
    throw transport::TimedOut(fmt::format("{}: nothing arrived for {} s; the peer is stalled, or the link is too slow for --timeout",
                                          describe(config_, step, micro_batch), seconds(config_.timeout)));
  }
  if (got->step != step || got->index != micro_batch) {
    throw std::runtime_error(
        fmt::format("expected {}, got step {}, micro-batch {}", describe(config_, step, micro_batch), got->step, got->index));
  }
  got->ready.take(got->tensors);
  return std::move(got->tensors);
}

Traffic ReusingReceiver::take_traffic() {
  const std::lock_guard lock(mutex_);
  return std::exchange(traffic_, {});
}

}  // namespace epipe::boundary
