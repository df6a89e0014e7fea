#include "epipe/pipeline/cut.h"

#include <stdexcept>

#include "epipe/transport/inproc/inproc.h"

namespace epipe::pipeline {

std::unique_ptr<Cut> Cut::between_threads(const Config& config, const boundary::OnFailure& on_failure) {
  auto cut = std::make_unique<Cut>();
  for (const auto direction : {wire::Direction::kForward, wire::Direction::kBackward}) {
    boundary::BoundaryConfig ends;
    ends.codec = direction == wire::Direction::kForward ? config.forward : config.backward;
    ends.cut = config.index;
    ends.direction = direction;
    ends.capacity = config.capacity;
    ends.tracer = config.tracer;
    Way& way = cut->ways_[index_of(direction)];
    way.link = transport::make_inproc_link(config.capacity);
    way.sender = std::make_unique<boundary::Sender>(ends, *way.link, on_failure);
    way.receiver = std::make_unique<boundary::Receiver>(ends, *way.link, on_failure);
  }
  return cut;
}

std::unique_ptr<Cut> Cut::within_worker() { return std::make_unique<Cut>(); }

void Cut::send(wire::Direction direction, boundary::Parcel parcel) {
  Way& way = ways_[index_of(direction)];
  if (way.sender) {
    way.sender->send(std::move(parcel));
  } else {
    way.handed_over.push_back(std::move(parcel));
  }
}

std::vector<torch::Tensor> Cut::recv(wire::Direction direction, std::uint64_t step, std::uint32_t micro_batch) {
  Way& way = ways_[index_of(direction)];
  if (way.receiver) return way.receiver->recv(step, micro_batch);
  if (way.handed_over.empty() || way.handed_over.front().micro_batch != micro_batch) {
    throw std::logic_error("the schedule asks for a tensor before it was made");
  }
  auto tensors = std::move(way.handed_over.front().tensors);
  way.handed_over.pop_front();
  return tensors;
}

boundary::Traffic Cut::take_traffic(wire::Direction direction) {
  Way& way = ways_[index_of(direction)];
  boundary::Traffic traffic;
  if (way.sender) {
    traffic = way.sender->take_traffic();
    traffic += way.receiver->take_traffic();
  }
  return traffic;
}

void Cut::close() {
  for (Way& way : ways_) {
    if (!way.sender) continue;
    way.sender->close();
    way.receiver->close();
  }
}

void Cut::join() {
  for (Way& way : ways_) {
    if (!way.sender) continue;
    way.sender->join();
    way.receiver->join();
  }
}

}  // namespace epipe::pipeline
