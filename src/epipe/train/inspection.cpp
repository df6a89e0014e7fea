#include "epipe/train/inspection.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "epipe/base/file.h"
#include "epipe/codec/frame_codec.h"
#include "epipe/data/npy.h"
#include "epipe/train/assemble.h"
#include "epipe/train/tensor_statistics.h"

namespace epipe::train {
namespace {

using nlohmann::ordered_json;
using wire::Direction;

const char* direction_name(Direction direction) { return direction == Direction::kForward ? "forward" : "backward"; }

std::unique_ptr<codec::Codec> make(const std::string& spec) {
  auto made = codec::make_codec(spec);
  if (!made) throw std::invalid_argument(made.error().message);
  return std::move(made).value();
}

// One codec on all tensors of one cut and direction, with an encoder per part, as in a pipeline.
class CodecAtCut {
 public:
  explicit CodecAtCut(std::string spec) : spec_(std::move(spec)) {}

  void add(const std::vector<torch::Tensor>& parts) {
    for (std::size_t p = 0; p < parts.size() && failed_.empty(); ++p) {
      if (encoders_.size() <= p) encoders_.push_back(make(spec_));
      const auto done = add(*encoders_[p], parts[p]);
      if (!done) failed_ = done.error().message;
    }
  }

  ordered_json to_json() const {
    if (!failed_.empty()) return {{"codec", spec_}, {"failed", failed_}};
    return {{"codec", spec_},
            {"wire_bytes", bytes_},
            {"bits_per_value", values_ == 0 ? 0 : 8 * static_cast<double>(bytes_) / static_cast<double>(values_)},
            {"rel_error", signal_ > 0 ? error_ / signal_ : 0}};
  }

 private:
  Result<void> add(codec::Codec& encoder, const torch::Tensor& x) {
    Bytes frame;
    EPIPE_TRY(codec::encode_frame(encoder, x, {}, {}, nullptr, frame));
    const auto decoded = codec::decode_frame(frame, {}, {});
    if (!decoded) return decoded.error();
    const auto wide = x.to(torch::kFloat64);
    error_ += (wide - decoded.value()).square().sum().item<double>();
    signal_ += wide.square().sum().item<double>();
    bytes_ += frame.size();
    values_ += x.numel();
    return {};
  }

  std::string spec_;
  std::vector<std::unique_ptr<codec::Codec>> encoders_;
  std::string failed_;
  std::uint64_t bytes_ = 0;
  std::int64_t values_ = 0;
  double error_ = 0;
  double signal_ = 0;
};

// One cut and direction.
struct AtCut {
  std::vector<std::int64_t> shape;
  TensorStatistics statistics;
  std::vector<CodecAtCut> codecs;
};

class Inspector {
 public:
  explicit Inspector(const InspectConfig& how) : how_(how) {
    for (const std::string& spec : how_.codecs) make(spec);  // reports a wrong one before anything runs
    if (how_.dump.empty()) return;
    if (const auto made = make_folders(how_.dump); !made) throw std::runtime_error(made.error().message);
  }

  // Called by several workers at once.
  void look(int cut, Direction direction, int micro_batch, const std::vector<torch::Tensor>& tensors) {
    std::vector<torch::Tensor> here;
    for (const auto& tensor : tensors) here.push_back(tensor.detach().to(torch::kCPU, torch::kFloat32).contiguous());
    const std::lock_guard lock(mutex_);
    AtCut& entry = cuts_[{cut, direction}];
    if (entry.codecs.empty()) {
      for (const std::string& spec : how_.codecs) entry.codecs.emplace_back(spec);
      entry.shape = here.at(0).sizes().vec();
    }
    for (const auto& tensor : here) entry.statistics.add(tensor);
    for (CodecAtCut& codec : entry.codecs) codec.add(here);
    for (std::size_t p = 0; p < here.size() && !how_.dump.empty(); ++p) write(cut, direction, micro_batch, p, here[p]);
  }

  void next_step() { ++step_; }

  ordered_json to_json(const std::vector<std::string>& layers) const {
    ordered_json all = ordered_json::array();
    for (const auto& [at, entry] : cuts_) {
      ordered_json object = {{"cut", at.first},
                             {"direction", direction_name(at.second)},
                             {"layer", layers.at(static_cast<std::size_t>(at.first))},
                             {"shape", entry.shape}};
      object.update(entry.statistics.to_json());
      object["codecs"] = ordered_json::array();
      for (const CodecAtCut& codec : entry.codecs) object["codecs"].push_back(codec.to_json());
      all.push_back(std::move(object));
    }
    return all;
  }

 private:
  void write(int cut, Direction direction, int micro_batch, std::size_t part, const torch::Tensor& x) const {
    const std::string more = part == 0 ? "" : fmt::format("_part{}", part);
    const std::string path =
        fmt::format("{}/step{}_cut{}_{}_{}{}.npy", how_.dump, step_, cut, direction_name(direction), micro_batch, more);
    if (const auto written = data::write_npy(path, x); !written) throw std::runtime_error(written.error().message);
  }

  InspectConfig how_;
  std::mutex mutex_;
  std::map<std::pair<int, Direction>, AtCut> cuts_;
  std::int64_t step_ = 0;  // changed between steps only
};

}  // namespace

ordered_json inspect(const Registry& registry, const TrainConfig& config, const InspectConfig& how, Observer& observer) {
  Inspector inspector(how);
  TrainConfig few = config;
  few.max_steps = how.steps;
  AssembleOptions options;
  options.weights = files_of(config);
  options.note = [&](const std::string& text) { observer.on_note(text); };
  options.observer = [&](int cut, Direction direction, int micro_batch, const std::vector<torch::Tensor>& tensors) {
    inspector.look(cut, direction, micro_batch, tensors);
  };
  RunParts run = assemble(registry, few, std::move(options));
  if (run.cut_names.empty()) throw std::invalid_argument("a model in one piece has no cuts to look at; say --cuts, e.g. --cuts 1,19");
  run.coordinator->connect();
  const auto steps = static_cast<std::uint64_t>(how.steps);
  const auto loader = run.batches->training(0);
  for (std::uint64_t s = 0; s < steps; ++s) {
    const data::LoadedBatch loaded = loader->next();
    const auto result = run.forward_backward(loaded, false);
    run.coordinator->commit(loaded.step, run.lr.at(static_cast<std::int64_t>(loaded.step)));
    inspector.next_step();
    const auto terms = static_cast<double>(std::max<std::int64_t>(1, result.terms));
    observer.on_step({loaded.epoch, s + 1, steps, result.loss, result.correct / terms, 0, 0});
  }
  return {{"model", config.model}, {"data", config.data}, {"steps", steps}, {"cuts", inspector.to_json(run.cut_names)}};
}

}  // namespace epipe::train
