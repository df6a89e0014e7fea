#include "epipe/pipeline/cut.h"

#include <deque>
#include <stdexcept>

#include "epipe/boundary/direct.h"
#include "epipe/boundary/receiver.h"
#include "epipe/transport/inproc/inproc.h"

namespace epipe::pipeline {
namespace {

using boundary::MicroBatchTensors;
using boundary::Traffic;
using wire::Direction;

// Used by one thread only.
class WithinWorker final : public Cut {
 public:
  void send(Direction direction, MicroBatchTensors tensors) override { waiting(direction).push_back(std::move(tensors)); }
  std::vector<torch::Tensor> recv(Direction direction, std::uint64_t, std::uint32_t micro_batch) override {
    auto& queue = waiting(direction);
    if (queue.empty() || queue.front().index != micro_batch) {
      throw std::logic_error("the schedule asks for a tensor before it was made");
    }
    auto tensors = std::move(queue.front().tensors);
    queue.pop_front();
    return tensors;
  }
  void finish_encoding() override {}
  Traffic take_traffic(Direction) override { return {}; }
  boundary::Sender* sender(Direction) override { return nullptr; }
  void close() override {}
  void join() override {}

 private:
  std::deque<MicroBatchTensors>& waiting(Direction direction) { return waiting_[static_cast<std::size_t>(direction)]; }

  std::array<std::deque<MicroBatchTensors>, 2> waiting_;  // by direction
};

class OnDevice final : public Cut {
 public:
  explicit OnDevice(const Config& config)
      : directs_{boundary::Direct(boundary_config(config, Side::kEarlier, Direction::kForward)),
                 boundary::Direct(boundary_config(config, Side::kLater, Direction::kBackward))} {}

  void send(Direction direction, MicroBatchTensors tensors) override { direct(direction).send(std::move(tensors)); }
  std::vector<torch::Tensor> recv(Direction direction, std::uint64_t step, std::uint32_t micro_batch) override {
    return direct(direction).recv(step, micro_batch);
  }
  void finish_encoding() override {
    for (auto& direct : directs_) direct.finish();
  }
  Traffic take_traffic(Direction direction) override { return direct(direction).take_traffic(); }
  boundary::Sender* sender(Direction) override { return nullptr; }
  void close() override {
    for (auto& direct : directs_) direct.close();
  }
  void join() override {}

 private:
  boundary::Direct& direct(Direction direction) { return directs_[static_cast<std::size_t>(direction)]; }

  std::array<boundary::Direct, 2> directs_;  // by direction
};

class Linked final : public Cut {
 public:
  // The queues of both directions' frames on the device that the workers share.
  using OnDeviceQueues = std::array<std::shared_ptr<Queue<boundary::Frame>>, 2>;

  void add_end(const Config& config, Side side, std::unique_ptr<transport::Link> link, const boundary::OnFailure& on_failure,
               const OnDeviceQueues& on_device = {}) {
    const bool earlier = side == Side::kEarlier;
    auto out = boundary_config(config, side, earlier ? Direction::kForward : Direction::kBackward);
    auto in = boundary_config(config, side, earlier ? Direction::kBackward : Direction::kForward);
    out.on_device = on_device[static_cast<std::size_t>(out.direction)];
    in.on_device = on_device[static_cast<std::size_t>(in.direction)];
    End& end = ends_[static_cast<std::size_t>(side)];
    end.link = std::move(link);
    end.sender = std::make_unique<boundary::Sender>(out, *end.link, on_failure);
    end.receiver = std::make_unique<boundary::Receiver>(in, *end.link, on_failure);
  }

  void send(Direction direction, MicroBatchTensors tensors) override { sending(direction).sender->send(std::move(tensors)); }
  std::vector<torch::Tensor> recv(Direction direction, std::uint64_t step, std::uint32_t micro_batch) override {
    return receiving(direction).receiver->recv(step, micro_batch);
  }
  void finish_encoding() override {
    for (End& end : ends_) {
      if (end.sender) end.sender->finish_encoding();
    }
  }
  Traffic take_traffic(Direction direction) override {
    Traffic traffic;
    if (sending(direction).sender) traffic += sending(direction).sender->take_traffic();
    if (receiving(direction).receiver) traffic += receiving(direction).receiver->take_traffic();
    return traffic;
  }
  boundary::Sender* sender(Direction direction) override { return sending(direction).sender.get(); }
  void close() override {
    for (End& end : ends_) {
      if (!end.link) continue;
      end.sender->close();
      end.receiver->close();
    }
  }
  void join() override {
    for (End& end : ends_) {
      if (!end.link) continue;
      end.sender->join();
      end.receiver->join();
    }
  }

 private:
  struct End {
    std::unique_ptr<transport::Link> link;
    std::unique_ptr<boundary::Sender> sender;
    std::unique_ptr<boundary::Receiver> receiver;
  };
  End& sending(Direction direction) { return ends_[direction == Direction::kForward ? 0 : 1]; }
  End& receiving(Direction direction) { return ends_[direction == Direction::kForward ? 1 : 0]; }

  std::array<End, 2> ends_;  // by side; only the local ones
};

bool shares_device(const Cut::Config& config) { return config.devices[0] == config.devices[1] && config.devices[0].is_cuda(); }

}  // namespace

boundary::BoundaryConfig Cut::boundary_config(const Config& config, Side side, Direction direction) {
  boundary::BoundaryConfig b;
  b.codec = direction == Direction::kForward ? config.forward : config.backward;
  b.cut = config.index;
  b.direction = direction;
  b.capacity = config.capacity;
  b.timeout = config.timeout;
  b.codec_threads = config.codec_threads;
  b.steps_overlap = config.steps_overlap;
  b.flag_non_finite = config.flag_non_finite;
  b.device = config.devices[static_cast<std::size_t>(side)];
  b.tracer = config.tracer;
  return b;
}

std::unique_ptr<Cut> Cut::within_worker() { return std::make_unique<WithinWorker>(); }

std::unique_ptr<Cut> Cut::between_threads(const Config& config, const boundary::OnFailure& on_failure) {
  if (shares_device(config) && config.forward == "none" && config.backward == "none") return std::make_unique<OnDevice>(config);
  auto cut = std::make_unique<Linked>();
  Linked::OnDeviceQueues on_device;
  if (shares_device(config)) {
    for (auto& frames : on_device) frames = std::make_shared<Queue<boundary::Frame>>(config.capacity);
  }
  auto [earlier, later] = transport::make_inproc_link(config.capacity);
  cut->add_end(config, Side::kEarlier, std::move(earlier), on_failure, on_device);
  cut->add_end(config, Side::kLater, std::move(later), on_failure, on_device);
  return cut;
}

std::unique_ptr<Cut> Cut::to_peer(const Config& config, Side side, std::unique_ptr<transport::Link> link,
                                  const boundary::OnFailure& on_failure) {
  auto cut = std::make_unique<Linked>();
  cut->add_end(config, side, std::move(link), on_failure);
  return cut;
}

}  // namespace epipe::pipeline
