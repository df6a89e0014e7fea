#include "epipe/train/step_command.h"

#include <fmt/format.h>

#include <stdexcept>

namespace epipe::train {
namespace {

using nlohmann::json;

constexpr const char* kTargets = "targets";
constexpr std::size_t kMaxSide = 16;

std::string side_name(std::size_t k) { return fmt::format("side.{}", k); }

void check_samples(const torch::Tensor& tensor, const layer::Batch& batch, const std::string& name) {
  if (tensor.dim() < 1 || tensor.size(0) != batch.size()) {
    throw std::invalid_argument(fmt::format("{} of a step has not one entry for each of {} samples", name, batch.size()));
  }
}

}  // namespace

Message step_message(const StepCommand& head, bool with_targets) {
  Message message{"step",
                  {{"epoch", head.id.epoch},
                   {"step", head.id.step},
                   {"chunks", head.id.chunks},
                   {"measure_error", head.id.measure_error},
                   {"loss_scale", head.id.loss_scale},
                   {"samples", head.batch.samples},
                   {"training", head.training},
                   {"norms", head.norms}}};
  if (head.id.samples > 0) message.fields["batch"] = head.id.samples;
  for (std::size_t k = 0; k < head.batch.side.size(); ++k) message.tensors[side_name(k)] = head.batch.side[k];
  if (with_targets && head.batch.targets.defined()) message.tensors[kTargets] = head.batch.targets;
  return message;
}

Message leader_step_message(const StepCommand& head) {
  return {"step",
          {{"epoch", head.id.epoch}, {"step", head.id.step}, {"measure_error", head.id.measure_error}, {"training", head.training}}};
}

StepCommand read_step_command(const Message& message) {
  StepCommand head;
  try {
    const json& fields = message.fields;
    head.id.epoch = fields.at("epoch");
    head.id.step = fields.at("step");
    head.id.chunks = fields.at("chunks");
    head.id.measure_error = fields.at("measure_error");
    head.id.loss_scale = fields.at("loss_scale");
    head.id.samples = fields.value("batch", std::int64_t{0});
    head.batch.samples = fields.at("samples").get<std::vector<std::int64_t>>();
    head.training = fields.at("training");
    head.norms = fields.at("norms");
  } catch (const json::exception& error) {
    throw std::invalid_argument(std::string("the command step is damaged: ") + error.what());
  }
  const bool none = head.batch.size() == 0 && head.id.chunks == 0 && head.training;  // a replica that has no sample of this batch
  if (!none && (head.id.chunks < 1 || head.id.chunks > head.batch.size())) {
    throw std::invalid_argument(fmt::format("a step of {} samples cannot have {} chunks", head.batch.size(), head.id.chunks));
  }
  if (!(head.id.loss_scale > 0)) throw std::invalid_argument(fmt::format("a loss scale must be above 0, got {}", head.id.loss_scale));
  if (head.id.samples != 0 && head.id.samples < head.batch.size()) {
    throw std::invalid_argument(fmt::format("a batch of {} cannot have a part of {} samples", head.id.samples, head.batch.size()));
  }
  for (std::size_t k = 0; k < kMaxSide; ++k) {
    const auto found = message.tensors.find(side_name(k));
    if (found == message.tensors.end()) break;
    check_samples(found->second, head.batch, side_name(k));
    head.batch.side.push_back(found->second);
  }
  if (const auto found = message.tensors.find(kTargets); found != message.tensors.end()) {
    check_samples(found->second, head.batch, kTargets);
    head.batch.targets = found->second;
  }
  return head;
}

}  // namespace epipe::train
