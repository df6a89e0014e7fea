#include "epipe/pipeline/cut.h"

#include <stdexcept>

#include "epipe/transport/inproc/inproc.h"

namespace epipe::pipeline {
namespace {

using wire::Direction;

boundary::BoundaryConfig boundary_config(const Cut::Config& config, Side side, Direction direction) {
  boundary::BoundaryConfig b;
  b.codec = direction == Direction::kForward ? config.forward : config.backward;
  b.cut = config.index;
  b.direction = direction;
  b.capacity = config.capacity;
  b.patience = config.patience;
  b.flag_non_finite = config.flag_non_finite;
  b.device = config.devices[static_cast<std::size_t>(side)];
  b.tracer = config.tracer;
  return b;
}

std::size_t index_of(Direction direction) { return static_cast<std::size_t>(direction); }

bool shares_device(const Cut::Config& config) {
  const auto& [earlier, later] = config.devices;
  return earlier == later && earlier.is_cuda() && config.forward == "none" && config.backward == "none";
}

}  // namespace

std::unique_ptr<Cut> Cut::within_worker() { return std::make_unique<Cut>(); }

std::unique_ptr<Cut> Cut::between_threads(const Config& config, const boundary::OnFailure& on_failure) {
  auto cut = std::make_unique<Cut>();
  if (shares_device(config)) {
    cut->add_direct(config);
    return cut;
  }
  auto [earlier, later] = transport::make_inproc_link(config.capacity);
  cut->add_end(config, Side::kEarlier, std::move(earlier), on_failure);
  cut->add_end(config, Side::kLater, std::move(later), on_failure);
  return cut;
}

std::unique_ptr<Cut> Cut::to_peer(const Config& config, Side side, std::unique_ptr<transport::Link> link,
                                  const boundary::OnFailure& on_failure) {
  auto cut = std::make_unique<Cut>();
  cut->add_end(config, side, std::move(link), on_failure);
  return cut;
}

void Cut::add_direct(const Config& config) {
  for (const auto direction : {Direction::kForward, Direction::kBackward}) {
    direct_[index_of(direction)] = std::make_unique<boundary::Direct>(boundary_config(config, Side::kEarlier, direction));
  }
}

void Cut::add_end(const Config& config, Side side, std::unique_ptr<transport::Link> link, const boundary::OnFailure& on_failure) {
  const bool earlier = side == Side::kEarlier;
  const auto out = boundary_config(config, side, earlier ? Direction::kForward : Direction::kBackward);
  const auto in = boundary_config(config, side, earlier ? Direction::kBackward : Direction::kForward);
  End& end = ends_[static_cast<std::size_t>(side)];
  end.link = std::move(link);
  end.sender = std::make_unique<boundary::Sender>(out, *end.link, on_failure);
  end.receiver = std::make_unique<boundary::Receiver>(in, *end.link, on_failure);
  linked_ = true;
}

void Cut::send(Direction direction, boundary::Parcel parcel) {
  if (linked_) {
    sending(direction).sender->send(std::move(parcel));
  } else if (direct_[index_of(direction)]) {
    direct_[index_of(direction)]->send(std::move(parcel));
  } else {
    handed_over_[index_of(direction)].push_back(std::move(parcel));
  }
}

std::vector<torch::Tensor> Cut::recv(Direction direction, std::uint64_t step, std::uint32_t micro_batch) {
  if (linked_) return receiving(direction).receiver->recv(step, micro_batch);
  if (direct_[index_of(direction)]) return direct_[index_of(direction)]->recv(step, micro_batch);
  auto& waiting = handed_over_[index_of(direction)];
  if (waiting.empty() || waiting.front().micro_batch != micro_batch) {
    throw std::logic_error("the schedule asks for a tensor before it was made");
  }
  auto tensors = std::move(waiting.front().tensors);
  waiting.pop_front();
  return tensors;
}

void Cut::finish_encoding() {
  for (End& end : ends_) {
    if (end.sender) end.sender->finish_encoding();
  }
  for (const auto& direct : direct_) {
    if (direct) direct->finish();
  }
}

boundary::Traffic Cut::take_traffic(Direction direction) {
  if (direct_[index_of(direction)]) return direct_[index_of(direction)]->take_traffic();
  boundary::Traffic traffic;
  if (sending(direction).sender) traffic += sending(direction).sender->take_traffic();
  if (receiving(direction).receiver) traffic += receiving(direction).receiver->take_traffic();
  return traffic;
}

boundary::Sender* Cut::sender(Direction direction) { return sending(direction).sender.get(); }

void Cut::close() {
  for (End& end : ends_) {
    if (!end.link) continue;
    end.sender->close();
    end.receiver->close();
  }
  for (const auto& direct : direct_) {
    if (direct) direct->close();
  }
}

void Cut::join() {
  for (End& end : ends_) {
    if (!end.link) continue;
    end.sender->join();
    end.receiver->join();
  }
}

}  // namespace epipe::pipeline
