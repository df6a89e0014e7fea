#include "epipe/boundary/receiver.h"

#include <fmt/format.h>

#include <stdexcept>

#include "epipe/base/clock.h"
#include "epipe/boundary/boundary_thread.h"

namespace epipe::boundary {

Receiver::Receiver(BoundaryConfig config, transport::Link& link, OnFailure on_failure)
    : config_(std::move(config)),
      link_(link),
      on_failure_(std::move(on_failure)),
      pool_(config_.codec_threads),
      decoder_(make_decoder(config_, pool_)),
      arrived_(config_.capacity) {
  config_.codec = decoder_.spec();  // frames name their codec in this form
  thread_ = std::thread([this] { run(); });
}

Receiver::~Receiver() {
  close();
  join();
}

void Receiver::join() {
  if (thread_.joinable()) thread_.join();
}

void Receiver::close() {
  arrived_.close();
  link_.close();
  if (config_.on_device) config_.on_device->close();
}

void Receiver::run() {
  const OwnStream stream(config_.device);
  run_until_closed(
      [this] {
        arrived_.push(recv_tensors());
        note_depth(arrived_, mutex_, traffic_);
      },
      on_failure_);
}

// Always into a new tensor: the worker keeps earlier ones for its backward.
torch::Tensor Receiver::decode(const wire::FrameView& frame) const {
  const wire::FrameHeader& header = frame.header;
  if (header.non_finite && config_.flag_non_finite) return codec::not_a_number(header).to(config_.device);
  auto x = decoder_.decode(frame);
  if (!x) throw std::runtime_error(fmt::format("{}: {}", describe(config_, header.step, header.micro_batch), x.error().text()));
  return std::move(x).value();
}

torch::Tensor Receiver::decode(const FrameOnDevice& arrived) const {
  arrived.ready.take({arrived.frame.payload.bytes});
  return decoder_.decode(arrived.frame);
}

Frame Receiver::next_frame() { return config_.on_device ? config_.on_device->pop() : Frame(link_.recv(transport::kNoTimeout)); }

void Receiver::expect(const wire::FrameHeader& header, const MicroBatchTensors& micro_batch, std::size_t part, std::size_t parts) const {
  const bool fits = header.cut == config_.cut && header.direction == config_.direction && header.step == micro_batch.step &&
                    header.micro_batch == micro_batch.index && header.part == part && header.parts == parts &&
                    header.codec == config_.codec;
  if (fits) return;
  throw std::runtime_error(fmt::format("{}: expected tensor {} of {} by {}, got tensor {} of {} by {} for cut {}, step {}, micro-batch {}",
                                       describe(config_, micro_batch.step, micro_batch.index), part, parts, config_.codec, header.part,
                                       header.parts, header.codec, header.cut, header.step, header.micro_batch));
}

// Receives all frames of one micro-batch and checks that they belong together; recv() checks which micro-batch it is.
MicroBatchTensors Receiver::recv_tensors() {
  MicroBatchTensors micro_batch;
  std::size_t parts = 1;
  wire::Limits left = config_.limits;  // for all parts together
  for (std::size_t part = 0; part < parts; ++part) {
    double receiving = 0;
    double decoding = 0;
    Frame arrived;
    {
      const Stopwatch watch;
      arrived = next_frame();
      receiving = watch.seconds();
    }
    const auto* const on_device = std::get_if<FrameOnDevice>(&arrived);
    wire::FrameView frame;
    if (on_device == nullptr) {
      auto read = wire::read_frame(std::get<Bytes>(arrived), left, &pool_);
      if (!read) throw std::runtime_error(fmt::format("cut {}: {}", config_.cut, read.error().text()));
      frame = std::move(read).value();
    }
    const wire::FrameHeader& header = on_device != nullptr ? on_device->frame.header : frame.header;
    if (part == 0) {
      micro_batch.step = header.step;
      micro_batch.index = header.micro_batch;
      parts = header.parts;
    }
    expect(header, micro_batch, part, parts);
    {
      const Span span(decoding, config_.tracer, track_of(config_, true), "decode", micro_batch.step,
                      fmt::format("decode {}", micro_batch.index));
      micro_batch.tensors.push_back(on_device != nullptr ? decode(*on_device) : decode(frame));
      left.max_values -= static_cast<std::uint64_t>(micro_batch.tensors.back().numel());
    }
    const std::lock_guard lock(mutex_);
    traffic_.recv_seconds += receiving;
    traffic_.decode_seconds += decoding;
  }
  micro_batch.ready = StreamEvent(micro_batch.tensors);
  return micro_batch;
}

MicroBatchTensors Receiver::next(std::uint64_t step, std::uint32_t micro_batch) {
  if (config_.timeout == transport::kNoTimeout) return arrived_.pop();
  auto got = arrived_.pop_within(config_.timeout);
  if (!got) {
    throw transport::TimedOut(fmt::format("{}: nothing arrived for {} s; the peer is stalled, or the link is too slow for --timeout",
                                          describe(config_, step, micro_batch), seconds(config_.timeout)));
  }
  return std::move(*got);
}

std::vector<torch::Tensor> Receiver::recv(std::uint64_t step, std::uint32_t micro_batch) {
  MicroBatchTensors got = next(step, micro_batch);
  if (got.step != step || got.index != micro_batch) {
    throw std::runtime_error(
        fmt::format("expected {}, got step {}, micro-batch {}", describe(config_, step, micro_batch), got.step, got.index));
  }
  got.ready.take(got.tensors);
  return std::move(got.tensors);
}

Traffic Receiver::take_traffic() {
  const std::lock_guard lock(mutex_);
  return std::exchange(traffic_, {});
}

}  // namespace epipe::boundary
