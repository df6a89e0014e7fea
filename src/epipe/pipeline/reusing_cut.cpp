// The end of a cut that carries activations forward, each only once while its receiver keeps it, and nothing backward.
#include <stdexcept>

#include "epipe/boundary/reusing_receiver.h"
#include "epipe/boundary/reusing_sender.h"
#include "epipe/pipeline/cut.h"

namespace epipe::pipeline {
namespace {

using boundary::Traffic;
using wire::Direction;

void require_forward(Direction direction) {
  if (direction != Direction::kForward) throw std::logic_error("a cut whose activations are reused carries no gradients");
}

class ReusingEnd final : public Cut {
 public:
  ReusingEnd(const boundary::BoundaryConfig& config, Side side, std::unique_ptr<transport::Link> link,
             std::shared_ptr<boundary::FrameStore> frames, const boundary::OnFailure& on_failure)
      : link_(std::move(link)) {
    if (side == Side::kEarlier) sender_ = std::make_unique<boundary::ReusingSender>(config, *link_, on_failure);
    if (side == Side::kLater) receiver_ = std::make_unique<boundary::ReusingReceiver>(config, *link_, std::move(frames), on_failure);
  }

  void send(Direction direction, boundary::MicroBatchTensors tensors) override {
    require_forward(direction);
    sender_->send(std::move(tensors));
  }
  std::vector<torch::Tensor> recv(Direction direction, std::uint64_t step, std::uint32_t micro_batch) override {
    require_forward(direction);
    return receiver_->recv(step, micro_batch);
  }
  bool holds(const boundary::SampleKey& key) const override { return sender_->holds(key); }
  void finish_encoding() override {
    if (sender_) sender_->finish_encoding();
  }
  Traffic take_traffic(Direction direction) override {
    if (direction != Direction::kForward) return {};
    return sender_ ? sender_->take_traffic() : receiver_->take_traffic();
  }
  boundary::Sender* sender(Direction) override { return nullptr; }
  void close() override { sender_ ? sender_->close() : receiver_->close(); }
  void join() override { sender_ ? sender_->join() : receiver_->join(); }

 private:
  std::unique_ptr<transport::Link> link_;
  std::unique_ptr<boundary::ReusingSender> sender_;      // at the earlier side
  std::unique_ptr<boundary::ReusingReceiver> receiver_;  // at the later one
};

}  // namespace

std::unique_ptr<Cut> Cut::reusing(const Config& config, Side side, std::unique_ptr<transport::Link> link,
                                  std::shared_ptr<boundary::FrameStore> frames, const boundary::OnFailure& on_failure) {
  return std::make_unique<ReusingEnd>(boundary_config(config, side, Direction::kForward), side, std::move(link), std::move(frames),
                                      on_failure);
}

}  // namespace epipe::pipeline
