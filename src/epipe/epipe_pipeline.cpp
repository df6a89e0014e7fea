// epipe::Pipeline: the public class over pipeline/.
#include <stdexcept>
#include <utility>

#include "epipe/epipe.h"
#include "epipe/loop_codec.h"
#include "epipe/loss_adapter.h"
#include "epipe/model/model.h"
#include "epipe/pipeline/pipeline.h"
#include "epipe/train/loss.h"

namespace epipe {
namespace {

std::string wire_codec(const std::string& own, const std::string& everywhere) {
  return loop_codec(own.empty() ? everywhere : own,
                    " is layers with weights of their own: put such layers into the Sequential, on both sides of the cut");
}

pipeline::PipelineConfig config_of(const PipelineOptions& options) {
  pipeline::PipelineConfig config;
  config.cuts = options.cuts;
  config.placement = {options.place};
  config.schedule = options.schedule;
  config.chunks = options.chunks;
  config.threads = options.threads;
  config.devices = options.devices;
  config.codecs.assign(options.cuts.size(),
                       {wire_codec(options.codec_forward, options.codec), wire_codec(options.codec_backward, options.codec)});
  config.recompute = options.recompute;
  config.precision = layer::parse_precision(options.precision);
  config.seed = options.seed;
  return config;
}

std::vector<Traffic> to_public(const std::vector<boundary::Traffic>& cuts) {
  std::vector<Traffic> all;
  for (const auto& cut : cuts) all.push_back({cut.wire_bytes, cut.values});
  return all;
}

StepResult to_public(const pipeline::StepResult& r) {
  return {r.loss, r.correct, r.samples, to_public(r.forward), to_public(r.backward), r.predictions};
}

}  // namespace

class Pipeline::Impl {
 public:
  Impl(const Layers& layers, const PipelineOptions& options)
      : model_(model::build(layers.architecture())),
        pipeline_(model_.layers, config_of(options), options.loss ? to_private(options.loss) : train::make_loss({})) {}

  StepResult train_step(const Batch& batch) {
    const auto result = pipeline_.train_step(with_ids(batch), at_step());
    pipeline_.commit_batch();
    ++steps_;
    return to_public(result);
  }
  StepResult evaluate(const Batch& batch) { return to_public(pipeline_.evaluate(with_ids(batch), at_step())); }

  State state() const { return {steps_, pipeline_.encoder_state()}; }
  void set_state(const State& state) {
    pipeline_.set_encoder_state(state.encoders);
    steps_ = state.steps;
  }

 private:
  pipeline::StepId at_step() const { return {.step = steps_}; }

  layer::Batch with_ids(const Batch& batch) const {
    if (batch.inputs.empty()) throw std::invalid_argument("expected a batch with an input, got none");
    layer::Batch made{batch.inputs, batch.side, batch.targets, batch.samples};
    const std::int64_t size = batch.inputs[0].size(0);
    const auto first = static_cast<std::int64_t>(steps_) * size;
    for (std::int64_t i = 0; i < size && batch.samples.empty(); ++i) made.samples.push_back(first + i);
    if (made.size() == size) return made;
    throw std::invalid_argument("expected as many ids as samples: " + std::to_string(size) + ", got " + std::to_string(made.size()));
  }

  model::Model model_;  // uses the net's tensors
  pipeline::Pipeline pipeline_;
  std::uint64_t steps_ = 0;
};

Pipeline::Pipeline(const Layers& layers, PipelineOptions options) : impl_(std::make_unique<Impl>(layers, options)) {}
Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&&) noexcept = default;
Pipeline& Pipeline::operator=(Pipeline&&) noexcept = default;

StepResult Pipeline::train_step(const torch::Tensor& inputs, const torch::Tensor& targets) { return train_step({{inputs}, targets}); }
StepResult Pipeline::train_step(const Batch& batch) { return impl_->train_step(batch); }
StepResult Pipeline::evaluate(const torch::Tensor& inputs, const torch::Tensor& targets) { return evaluate({{inputs}, targets}); }
StepResult Pipeline::evaluate(const Batch& batch) { return impl_->evaluate(batch); }
Pipeline::State Pipeline::state() const { return impl_->state(); }
void Pipeline::set_state(const State& state) { impl_->set_state(state); }

}  // namespace epipe
