#include "epipe/pipeline/parameter_versions.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace epipe::pipeline {

ParameterVersions::ParameterVersions(std::vector<std::shared_ptr<layer::Layer>> layers) : layers_(std::move(layers)) {
  for (const auto& layer : layers_) {
    for (const auto& item : layer->named_parameters()) {
      if (!item.value().requires_grad()) continue;
      parameters_.push_back(item.value());
      newest_.push_back({layer->full_name(item.key()), item.value().detach()});
      newest_.back().version = newest_.back().version.variable_data();
      previous_.push_back(newest_.back().version.clone());
    }
  }
}

std::vector<std::pair<std::string, torch::Tensor>> ParameterVersions::previous() const {
  std::vector<std::pair<std::string, torch::Tensor>> all;
  for (std::size_t i = 0; i < previous_.size(); ++i) all.emplace_back(newest_[i].name, previous_[i]);
  return all;
}

void ParameterVersions::begin(std::uint64_t steps_done) {
  settle();
  version_ = steps_done;
}

void ParameterVersions::show(bool previous) {
  if (std::exchange(shows_previous_, previous) == previous) return;
  for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].set_data(previous ? previous_[i] : newest_[i].version);
}

ParameterVersions::Open* ParameterVersions::find(std::uint64_t step) {
  const auto found = std::find_if(open_.begin(), open_.end(), [&](const Open& open) { return open.step == step; });
  return found == open_.end() ? nullptr : &*found;
}

void ParameterVersions::put_gradients_away() {
  if (!in_use_) return;
  auto& gradients = find(*in_use_)->gradients;
  gradients.clear();
  for (auto& parameter : parameters_) gradients.push_back(std::exchange(parameter.mutable_grad(), torch::Tensor()));
  in_use_.reset();
}

void ParameterVersions::use(std::uint64_t step) {
  const std::uint64_t version = step == 0 ? 0 : step - 1;
  if (version > version_ || version + 1 < version_) {
    throw std::logic_error(
        fmt::format("step {} needs the weights after {} steps; those after {} are the newest here", step, version, version_));
  }
  show(version != version_);
  if (in_use_ == step) return;
  put_gradients_away();
  Open* open = find(step);
  if (open == nullptr) {
    if (open_.size() == 2) throw std::logic_error(fmt::format("step {} begins while two others are under way", step));
    open = &open_.emplace_back(Open{step});
  }
  for (std::size_t i = 0; i < open->gradients.size(); ++i) parameters_[i].mutable_grad() = open->gradients[i];
  in_use_ = step;
}

void ParameterVersions::gather_batch(std::uint64_t step) {
  use(step);
  find(step)->batch = layer::GatheredBatch(layers_);
}

void ParameterVersions::complete(std::uint64_t step) {
  use(step);
  put_gradients_away();
  const auto open = std::find_if(open_.begin(), open_.end(), [&](const Open& one) { return one.step == step; });
  for (std::size_t i = 0; i < parameters_.size(); ++i) newest_[i].version.mutable_grad() = std::move(open->gradients[i]);
  done_ = std::move(open->batch);
  open_.erase(open);
}

// The values that forwards have used stay where they are, because autograd may have kept views of them. Nobody needs those of the version
// before: their place is the new version's.
void ParameterVersions::advance() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < previous_.size(); ++i) {
    torch::Tensor used = newest_[i].version.variable_data();
    newest_[i].version.set_data(previous_[i]);
    previous_[i] = std::move(used);
    newest_[i].version.copy_(previous_[i]);
  }
  shows_previous_ = !shows_previous_;
  ++version_;
}

void ParameterVersions::commit_batch() {
  if (done_) done_->commit(layers_);
  done_.reset();
}

void ParameterVersions::settle() {
  show(false);
  for (auto& parameter : parameters_) parameter.mutable_grad() = torch::Tensor();
  for (auto& newest : newest_) newest.version.mutable_grad() = torch::Tensor();
  open_.clear();
  in_use_.reset();
  done_.reset();
  for (const auto& layer : layers_) layer->discard_batch();
}

void ParameterVersions::follow_layout() {
  settle();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    torch::Tensor& newest = newest_[i].version;
    if (newest.data_ptr() == parameters_[i].data_ptr() && newest.strides() == parameters_[i].strides()) continue;
    newest.set_data(parameters_[i].detach());
    previous_[i] = torch::empty_like(newest).copy_(previous_[i]);
  }
}

}  // namespace epipe::pipeline
