#include "epipe/boundary/boundary.h"

#include <fmt/format.h>

#include <stdexcept>

#include "epipe/base/clock.h"

namespace epipe::boundary {
namespace {

constexpr std::size_t kMaxParts = 255;

std::unique_ptr<codec::Codec> make_encoder(const std::string& spec) {
  auto made = codec::make_codec(spec);
  if (!made) throw std::invalid_argument(made.error().text());
  return std::move(made).value();
}

double seconds(transport::Timeout timeout) { return static_cast<double>(timeout.count()) / 1000; }

// The loop of a boundary's thread: until the queues are closed or something fails.
template <typename Work>
void run_until_closed(const Work& work, const OnFailure& on_failure) {
  try {
    while (true) work();
  } catch (const Closed&) {
    // Somebody else ended the run and says why.
  } catch (...) {
    on_failure(std::current_exception());
  }
}

torch::Tensor decode(const wire::FrameView& frame, const BoundaryConfig& config, std::uint64_t step, std::uint32_t micro_batch) {
  if (frame.header.non_finite && config.flag_non_finite) return codec::not_a_number(frame.header).to(config.device);
  codec::CodecOptions options;
  options.device = config.device;
  auto x = codec::decode_payload(frame, options);
  if (!x) throw std::runtime_error(fmt::format("{}: {}", describe(config, step, micro_batch), x.error().text()));
  return std::move(x).value();
}

}  // namespace

std::string describe(const BoundaryConfig& config, std::uint64_t step, std::uint32_t micro_batch) {
  return fmt::format("cut {} {}, step {}, micro-batch {}", config.cut,
                     config.direction == wire::Direction::kForward ? "forward" : "backward", step, micro_batch);
}

int track_of(const BoundaryConfig& config, bool receiver) {
  return 100 + 4 * config.cut + 2 * static_cast<int>(config.direction) + (receiver ? 1 : 0);
}

Sender::Sender(BoundaryConfig config, transport::Link& link, OnFailure on_failure)
    : config_(std::move(config)), link_(link), on_failure_(std::move(on_failure)), waiting_(config_.capacity) {
  encoders_.push_back(make_encoder(config_.codec));  // a wrong spec fails here, not in the thread
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

void Sender::count(int parcels) {
  {
    const std::lock_guard lock(mutex_);
    unencoded_ += parcels;
  }
  encoded_.notify_all();
}

void Sender::finish_encoding() {
  std::unique_lock lock(mutex_);
  const auto finished = [this] { return over_ || unencoded_ == 0; };
  if (config_.timeout == transport::kNoTimeout) {
    encoded_.wait(lock, finished);
  } else if (!encoded_.wait_for(lock, config_.timeout, finished)) {
    throw transport::TimedOut(fmt::format("cut {}: the peer took nothing for {} s", config_.cut, seconds(config_.timeout)));
  }
  if (unencoded_ != 0) throw Closed();
}

void Sender::send(Parcel parcel) {
  parcel.ready = StreamEvent(parcel.tensors);
  count(1);
  if (config_.timeout == transport::kNoTimeout) return waiting_.push(std::move(parcel));
  if (!waiting_.push_within(parcel, config_.timeout)) {
    throw transport::TimedOut(fmt::format("{}: the peer took nothing for {} s; it is stalled, or the link is too slow for --timeout",
                                          describe(config_, parcel.step, parcel.micro_batch), seconds(config_.timeout)));
  }
}

codec::Codec& Sender::encoder(std::size_t part) {
  while (encoders_.size() <= part) encoders_.push_back(make_encoder(config_.codec));
  return *encoders_[part];
}

void Sender::encode_and_send(const Parcel& parcel) {
  if (parcel.tensors.empty()) return count(-1);
  if (parcel.tensors.size() > kMaxParts) throw std::runtime_error(fmt::format("a cut carries at most {} tensors", kMaxParts));
  parcel.ready.take(parcel.tensors);
  for (std::size_t part = 0; part < parcel.tensors.size(); ++part) {
    const torch::Tensor x = parcel.tensors[part].detach();
    const codec::FrameTag tag{parcel.step,
                              parcel.micro_batch,
                              config_.cut,
                              static_cast<std::uint8_t>(part),
                              static_cast<std::uint8_t>(parcel.tensors.size()),
                              config_.direction};
    Bytes frame = encode(x, part, parcel, tag);
    if (part + 1 == parcel.tensors.size()) count(-1);
    double sending = 0;
    const Span span(sending, config_.tracer, track_of(config_, false), "send", parcel.step, fmt::format("send {}", parcel.micro_batch));
    link_.send(std::move(frame));
  }
}

Bytes Sender::encode(const torch::Tensor& x, std::size_t part, const Parcel& parcel, const codec::FrameTag& tag) {
  const std::lock_guard lock(mutex_);
  Bytes frame;
  {
    const Span span(traffic_.encode_seconds, config_.tracer, track_of(config_, false), "encode", parcel.step,
                    fmt::format("encode {}", parcel.micro_batch));
    encode_frame(x, part, parcel, tag, frame);
  }
  traffic_.wire_bytes += frame.size();
  traffic_.values += static_cast<std::uint64_t>(x.numel());
  traffic_.form = codec::chosen_form(frame);
  if (parcel.measure_error) measure(x, frame);
  return frame;
}

void Sender::encode_frame(const torch::Tensor& x, std::size_t part, const Parcel& parcel, const codec::FrameTag& tag, Bytes& out) {
  const auto result = codec::encode_frame(encoder(part), x, tag, {parcel.frozen}, nullptr, out);
  if (result) return;
  const ErrorCode code = result.error().code;
  if (config_.flag_non_finite && (code == ErrorCode::kNonFinite || code == ErrorCode::kOutOfRange)) {
    return codec::encode_non_finite(encoder(part), x, tag, out);
  }
  throw std::runtime_error(fmt::format("{}: {}", describe(config_, parcel.step, parcel.micro_batch), result.error().text()));
}

void Sender::measure(const torch::Tensor& x, const Bytes& frame) {
  codec::CodecOptions options;
  options.device = x.device();
  const auto decoded = codec::decode_frame(frame, config_.limits, options);
  if (!decoded && config_.flag_non_finite && decoded.error().code == ErrorCode::kNonFinite) return;  // a flagged frame
  if (!decoded) throw std::runtime_error("a frame of our own does not decode: " + decoded.error().text());
  const auto exact = x.to(torch::kFloat64);
  traffic_.error_energy += (exact - decoded.value().to(torch::kFloat64)).square().sum().item<double>();
  traffic_.signal_energy += exact.square().sum().item<double>();
}

Traffic Sender::take_traffic() {
  const std::lock_guard lock(mutex_);
  return std::exchange(traffic_, {});
}

std::vector<codec::State> Sender::state() const {
  const std::lock_guard lock(mutex_);
  std::vector<codec::State> states;
  for (const auto& encoder : encoders_) states.push_back(encoder->state());
  return states;
}

void Sender::set_state(const std::vector<codec::State>& states) {
  const std::lock_guard lock(mutex_);
  encoders_.clear();
  for (std::size_t part = 0; part < states.size(); ++part) encoder(part).set_state(states[part]);
}

Receiver::Receiver(BoundaryConfig config, transport::Link& link, OnFailure on_failure)
    : config_(std::move(config)), link_(link), on_failure_(std::move(on_failure)), arrived_(config_.capacity) {
  config_.codec = make_encoder(config_.codec)->spec();  // frames name their codec in this form
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
}

void Receiver::run() {
  const OwnStream stream(config_.device);
  run_until_closed([this] { arrived_.push(recv_parcel()); }, on_failure_);
}

// All frames of one micro-batch. Which micro-batch it should be is for recv() to say; that they belong together is checked here.
Parcel Receiver::recv_parcel() {
  Parcel parcel;
  std::size_t parts = 1;
  wire::Limits left = config_.limits;  // for all parts together
  for (std::size_t part = 0; part < parts; ++part) {
    double receiving = 0;
    double decoding = 0;
    Bytes bytes;
    {
      const Stopwatch watch;
      bytes = link_.recv(transport::kNoTimeout);
      receiving = watch.seconds();
    }
    const auto frame = wire::read_frame(bytes, left);
    if (!frame) throw std::runtime_error(fmt::format("cut {}: {}", config_.cut, frame.error().text()));
    const auto& header = frame.value().header;
    if (part == 0) {
      parcel.step = header.step;
      parcel.micro_batch = header.micro_batch;
      parts = header.parts;
    }
    const bool fits = header.cut == config_.cut && header.direction == config_.direction && header.step == parcel.step &&
                      header.micro_batch == parcel.micro_batch && header.part == part && header.parts == parts &&
                      header.codec == config_.codec;
    if (!fits) {
      throw std::runtime_error(
          fmt::format("{}: expected tensor {} of {} by {}, got tensor {} of {} by {} for cut {}, step {}, micro-batch {}",
                      describe(config_, parcel.step, parcel.micro_batch), part, parts, config_.codec, header.part, header.parts,
                      header.codec, header.cut, header.step, header.micro_batch));
    }
    {
      const Span span(decoding, config_.tracer, track_of(config_, true), "decode", parcel.step,
                      fmt::format("decode {}", parcel.micro_batch));
      parcel.tensors.push_back(decode(frame.value(), config_, parcel.step, parcel.micro_batch));
      left.max_values -= static_cast<std::uint64_t>(parcel.tensors.back().numel());
    }
    const std::lock_guard lock(mutex_);
    traffic_.recv_seconds += receiving;
    traffic_.decode_seconds += decoding;
  }
  parcel.ready = StreamEvent(parcel.tensors);
  return parcel;
}

Parcel Receiver::next(std::uint64_t step, std::uint32_t micro_batch) {
  if (config_.timeout == transport::kNoTimeout) return arrived_.pop();
  auto parcel = arrived_.pop_within(config_.timeout);
  if (!parcel) {
    throw transport::TimedOut(fmt::format("{}: nothing arrived for {} s; the peer is stalled, or the link is too slow for --timeout",
                                          describe(config_, step, micro_batch), seconds(config_.timeout)));
  }
  return std::move(*parcel);
}

std::vector<torch::Tensor> Receiver::recv(std::uint64_t step, std::uint32_t micro_batch) {
  Parcel parcel = next(step, micro_batch);
  if (parcel.step != step || parcel.micro_batch != micro_batch) {
    throw std::runtime_error(
        fmt::format("expected {}, got step {}, micro-batch {}", describe(config_, step, micro_batch), parcel.step, parcel.micro_batch));
  }
  parcel.ready.take(parcel.tensors);
  return std::move(parcel.tensors);
}

Traffic Receiver::take_traffic() {
  const std::lock_guard lock(mutex_);
  return std::exchange(traffic_, {});
}

}  // namespace epipe::boundary
