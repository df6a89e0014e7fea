#include "epipe/schedule/shared_run.h"

#include <memory>

namespace epipe::schedule {
namespace {

// The stages before and after a cut, as a tensor passes it.
int source(Direction direction, int cut) { return direction == Direction::kForward ? cut : cut + 1; }
int target(Direction direction, int cut) { return next_stage(direction, source(direction, cut)); }

}  // namespace

SharedRun::SharedRun(const Schedule& schedule, const Costs& costs, const Resources& resources)
    : schedule_(schedule), costs_(costs), resources_(resources), stations_(resources.cores) {
  for (const int machine : resources.machine_of) threads_.push_back(stations_.add(machine));
  working_.resize(threads_.size());
  intervals_.resize(threads_.size());
  for (const Direction direction : kDirections) {
    arrived_[direction].resize(schedule.placement.worker_of.size(), 0);
    for (int cut = 0; cut + 1 < schedule.placement.stages(); ++cut) {
      if (schedule.placement.crosses(cut)) add_way(direction, cut);
    }
  }
  arrived_[Direction::kForward][0] = schedule.chunks;
}

void SharedRun::add_way(Direction direction, int cut) {
  const int from = source(direction, cut);
  const int to = target(direction, cut);
  ways_[{direction, cut}] = {stations_.add(machine_of(from)), stations_.add(machine_of(to))};
  const std::pair workers(worker_of(from), worker_of(to));
  if (roads_.contains(workers)) return;
  roads_[workers] = {stations_.add(Stations::kLink), stations_.add(machine_of(from)), stations_.add(machine_of(to))};
}

int SharedRun::machine_of(int stage) const { return resources_.machine_of[static_cast<std::size_t>(worker_of(stage))]; }

std::vector<std::vector<Interval>> SharedRun::run() {
  for (std::size_t w = 0; w < threads_.size(); ++w) start_next(w);
  stations_.run();
  return std::move(intervals_);
}

// Inputs arrive in micro-batch order. What takes none from a cut follows its own worker's earlier actions.
bool SharedRun::input_there(const Action& action) const {
  const auto direction = info(action.kind).direction;
  return !direction || arrived_.at(*direction)[static_cast<std::size_t>(action.stage)] > action.micro_batch;
}

void SharedRun::start_next(std::size_t worker) {
  const std::size_t next = intervals_[worker].size();
  if (working_[worker] || next == schedule_.per_worker[worker].size()) return;
  const Action action = schedule_.per_worker[worker][next];
  if (!input_there(action)) return;
  working_[worker] = true;
  stations_.give(threads_[worker], costs_.of(action), [this, worker, action](double begin, double end) {
    working_[worker] = false;
    intervals_[worker].push_back({begin, end});
    finish(action);
    start_next(worker);
  });
}

void SharedRun::finish(const Action& action) {
  const auto direction = info(action.kind).direction;
  if (!direction) return;
  const int to = next_stage(*direction, action.stage);
  if (to < 0) return;
  if (to == schedule_.placement.stages()) return arrive(Direction::kBackward, action.stage);  // the loss
  send(*direction, cut_after(*direction, action.stage));
}

void SharedRun::send(Direction direction, int cut) {
  if (!schedule_.placement.crosses(cut)) return arrive(direction, target(direction, cut));
  stations_.give(ways_[{direction, cut}].encoder, resources_.encode.at(direction, cut),
                 [this, direction, cut](double, double) { carry(direction, cut); });
}

// The frame is there when it is over the link and both ends have done their work for it.
void SharedRun::carry(Direction direction, int cut) {
  const Road& road = roads_[{worker_of(source(direction, cut)), worker_of(target(direction, cut))}];
  const auto missing = std::make_shared<int>(3);  // shared by the three
  const auto done = [this, direction, cut, missing](double, double) {
    if (--*missing == 0) receive(direction, cut);
  };
  stations_.give(road.link, costs_.transfer(direction, cut), done);
  stations_.give(road.carrier_out, resources_.carry_out.at(direction, cut), done);
  stations_.give(road.carrier_in, resources_.carry_in.at(direction, cut), done);
}

void SharedRun::receive(Direction direction, int cut) {
  stations_.after(resources_.latency + costs_.delay_of(cut), [this, direction, cut](double, double) {
    stations_.give(ways_[{direction, cut}].decoder, resources_.decode.at(direction, cut),
                   [this, direction, cut](double, double) { arrive(direction, target(direction, cut)); });
  });
}

void SharedRun::arrive(Direction direction, int stage) {
  ++arrived_[direction][static_cast<std::size_t>(stage)];
  start_next(static_cast<std::size_t>(worker_of(stage)));
}

}  // namespace epipe::schedule
