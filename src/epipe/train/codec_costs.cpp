#include "epipe/train/codec_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "epipe/base/clock.h"
#include "epipe/base/median.h"
#include "epipe/base/other_work.h"
#include "epipe/base/queue.h"
#include "epipe/base/thread_pool.h"
#include "epipe/codec/frame_codec.h"
#include "epipe/model/learned_codec.h"
#include "epipe/train/cost_tables.h"
#include "epipe/train/first_samples.h"

namespace epipe::train {
namespace {

constexpr double kMostValues = 1U << 26U;  // of all boundaries together
constexpr std::size_t kMostLayers = 12;    // that a codec is measured at
constexpr double kTensorSeconds = 0.02;     // for one size of one tensor
constexpr std::size_t kLeastRounds = 4;
constexpr std::size_t kMostRounds = 100;
constexpr int kParts = 8;  // of a tensor: pairs of them are the larger size, one the smaller

std::int64_t affordable_samples(const TrainConfig& config, const Batches& batches, const std::vector<planner::Layer>& layers) {
  double values = 1;
  for (const planner::Layer& layer : layers) values += layer.values;
  const auto samples = static_cast<std::int64_t>(std::min(kMostValues / values, 1e6));
  return std::clamp<std::int64_t>(samples, 1, std::min(config.batch, batches.training_data().size()));
}

// Until a thread that waits for a tensor has it from another one: encoders and decoders have threads of their own.
double handover_seconds() {
  constexpr int kRounds = 200;
  Queue<int> there(1);
  Queue<int> back(1);
  std::thread other([&] {
    for (int round = 0; round < kRounds; ++round) back.push(there.pop());
  });
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) {
    const Stopwatch watch;
    there.push(round);
    back.pop();
    seconds.push_back(watch.seconds() / 2);
  }
  other.join();
  return median(seconds);
}

// One codec at one boundary and direction, as a sender and a receiver of frames would run it. Frames follow each other as micro-batches
// do: no two in a row are the same, for an encoder that sees the same tensor again has nothing to search.
class MeasuredBoundary {
 public:
  MeasuredBoundary(const std::string& spec, ThreadPool* pool, double handover)
      : options_{pool},
        handover_(handover),
        pool_(pool),
        codec_(value_of(codec::make_codec(spec, options_))),
        decoder_(value_of(codec::FrameDecoder::make(spec, options_))) {}

  planner::FrameCosts run(const torch::Tensor& x) {
    const std::int64_t samples = x.size(0);
    const std::int64_t large = std::max<std::int64_t>(1, samples / 2);
    const std::int64_t small = std::max<std::int64_t>(1, samples / kParts);
    measure(parts_of(x, large));
    if (small < large) measure(parts_of(x, small));
    planner::FrameCosts costs{fit_line(bytes_), fit_line(encode_), fit_line(decode_)};
    costs.encode.fixed += handover_;
    costs.decode.fixed += handover_;
    return costs;
  }
  double bytes() const { return all_bytes_; }
  double values() const { return all_values_; }

 private:
  template <typename T>
  static T value_of(Result<T> result) {
    if (!result) throw std::invalid_argument(result.error().message);
    return std::move(result).value();
  }

  static std::vector<torch::Tensor> parts_of(const torch::Tensor& x, std::int64_t samples) {
    std::vector<torch::Tensor> parts;
    for (std::int64_t at = 0; at + samples <= x.size(0) && parts.size() < kParts; at += samples) {
      parts.push_back(x.slice(0, at, at + samples).to(torch::kFloat32).contiguous());
    }
    return parts;
  }

  void measure(const std::vector<torch::Tensor>& parts) {
    std::vector<double> encode;
    std::vector<double> decode;
    double bytes = 0;
    pass(parts[0], encode, decode);  // chooses forms and steps
    encode.clear();
    decode.clear();
    const Stopwatch watch;
    while (encode.size() < kLeastRounds || (watch.seconds() < kTensorSeconds && encode.size() < kMostRounds)) {
      bytes += pass(parts[(encode.size() + 1) % parts.size()], encode, decode);
    }
    const auto values = static_cast<double>(parts[0].numel());
    const auto rounds = static_cast<double>(encode.size());
    all_bytes_ += bytes;
    all_values_ += rounds * values;
    bytes_.push_back({values, bytes / rounds});
    encode_.push_back({values, median(encode)});
    decode_.push_back({values, median(decode)});
  }

  double pass(const torch::Tensor& x, std::vector<double>& encode, std::vector<double>& decode) {
    constexpr wire::Limits kUnlimited{~std::uint64_t{0} >> 1, ~std::uint64_t{0} >> 1};
    Bytes frame;
    other_work_.run();
    const torch::Tensor fresh = x.clone();  // as a layer has just computed it
    const Stopwatch encoding;
    const auto encoded = codec::encode_frame(*codec_, fresh, {}, {}, pool_, frame);
    if (!encoded) throw std::invalid_argument(encoded.error().message);
    encode.push_back(encoding.seconds());
    other_work_.run();
    const Stopwatch decoding;
    const auto read = wire::read_frame(frame, kUnlimited, pool_);
    if (!read || !decoder_.decode(read.value())) throw std::logic_error("a frame of our own does not decode");
    decode.push_back(decoding.seconds());
    return static_cast<double>(frame.size());
  }

  codec::CodecOptions options_;
  double handover_;
  OtherWork other_work_;
  ThreadPool* pool_;
  std::unique_ptr<codec::Codec> codec_;
  codec::FrameDecoder decoder_;
  std::vector<Point> bytes_;  // by values
  std::vector<Point> encode_;
  std::vector<Point> decode_;
  double all_bytes_ = 0;
  double all_values_ = 0;
};

// Every boundary, or some at equal distances with the first and the last among them.
std::vector<std::size_t> measured_layers(std::size_t boundaries) {
  std::vector<std::size_t> chosen;
  const std::size_t count = std::min(boundaries, kMostLayers);
  for (std::size_t k = 0; k < count; ++k) chosen.push_back(count > 1 ? k * (boundaries - 1) / (count - 1) : 0);
  return chosen;
}

std::size_t nearest(const std::vector<std::size_t>& chosen, std::size_t layer) {
  const auto distance = [&](std::size_t l) { return l > layer ? l - layer : layer - l; };
  const auto best = std::min_element(chosen.begin(), chosen.end(), [&](auto a, auto b) { return distance(a) < distance(b); });
  return static_cast<std::size_t>(best - chosen.begin());
}

}  // namespace

std::vector<model::BoundaryTensors> boundaries_of(const Registry& registry, const model::Architecture& architecture,
                                                  const TrainConfig& config, const Batches& batches,
                                                  const std::vector<planner::Layer>& layers) {
  FirstSamples first = first_samples(config, batches, affordable_samples(config, batches, layers));
  first.at.training = true;
  const pipeline::Loss loss = registry.losses.find(config.loss, batches.spec());
  return model::boundary_tensors(architecture, first.batch.inputs, first.at,
                                 [&](const layer::Tensors& outputs) { return loss(outputs, first.batch.targets).sum; });
}

planner::CodecCosts codec_costs(const std::string& spec, const std::vector<model::BoundaryTensors>& boundaries, int threads) {
  if (model::split_learned(spec).learned) {
    throw std::invalid_argument(fmt::format(
        "the codec {} is trained with the model, and what it costs is not known before; plan with another one", spec));
  }
  ThreadPool pool(threads);
  const double handover = handover_seconds();
  planner::CodecCosts costs{spec};
  double bytes = 0;
  double values = 0;
  const auto measured = [&](const torch::Tensor& x) {
    MeasuredBoundary boundary(spec, &pool, handover);
    const planner::FrameCosts frame = boundary.run(x);
    bytes += boundary.bytes();
    values += boundary.values();
    return frame;
  };
  if (boundaries.empty()) return {spec, 32, {{}}, {{}}};  // a model that cannot be cut
  const auto chosen = measured_layers(boundaries.size());
  std::vector<planner::FrameCosts> forward;
  std::vector<planner::FrameCosts> backward;
  for (const std::size_t layer : chosen) {
    forward.push_back(measured(boundaries[layer].activation));
    backward.push_back(measured(boundaries[layer].gradient));
  }
  for (std::size_t layer = 0; layer <= boundaries.size(); ++layer) {  // nothing is cut behind the last layer
    costs.forward.push_back(forward[nearest(chosen, layer)]);
    costs.backward.push_back(backward[nearest(chosen, layer)]);
  }
  costs.bits = values > 0 ? 8 * bytes / values : 32;
  return costs;
}

}  // namespace epipe::train
