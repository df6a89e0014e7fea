#include "epipe/boundary/device_stream.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace epipe::boundary {
namespace {

// The first tensor on a device; null if all are on the CPU.
const torch::Tensor* on_device(const std::vector<torch::Tensor>& tensors) {
  for (const auto& tensor : tensors) {
    if (tensor.defined() && tensor.is_cuda()) return &tensor;
  }
  return nullptr;
}

c10::Stream current_stream(torch::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

}  // namespace

OwnStream::OwnStream(torch::Device device) {
  if (!device.is_cuda()) return;
  const torch::Device exact = device.has_index() ? device : torch::Device(device.type(), 0);
  guard_ = std::make_unique<c10::StreamGuard>(c10::impl::VirtualGuardImpl(exact.type()).getStreamFromGlobalPool(exact));
}

void OwnStream::synchronize() const {
  if (guard_) c10::impl::VirtualGuardImpl(guard_->current_device().type()).synchronizeStream(guard_->current_stream());
}

void synchronize_current_stream(torch::Device device) {
  if (device.is_cuda()) c10::impl::VirtualGuardImpl(device.type()).synchronizeStream(current_stream(device));
}

void keep_for_current_stream(const std::vector<torch::Tensor>& tensors) {
  for (const auto& tensor : tensors) {
    if (tensor.defined() && tensor.is_cuda()) tensor.record_stream(current_stream(tensor.device()));
  }
}

StreamEvent::StreamEvent(const std::vector<torch::Tensor>& tensors) {
  const torch::Tensor* const tensor = on_device(tensors);
  if (tensor == nullptr) return;
  event_ = std::make_shared<c10::Event>(tensor->device().type());
  event_->record(current_stream(tensor->device()));
}

void StreamEvent::take(const std::vector<torch::Tensor>& tensors) const {
  const torch::Tensor* const tensor = on_device(tensors);
  if (event_ == nullptr || tensor == nullptr) return;
  event_->block(current_stream(tensor->device()));
  keep_for_current_stream(tensors);
}

}  // namespace epipe::boundary
