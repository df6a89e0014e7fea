#pragma once

#include <map>
#include <memory>
#include <vector>

#include "epipe/schedule/interval.h"
#include "epipe/schedule/resources.h"
#include "epipe/schedule/stations.h"

namespace epipe::schedule {

// One step of a valid schedule on threads and links that share machines.
class SharedRun {
 public:
  // All must outlive this.
  SharedRun(const Schedule& schedule, const Costs& costs, const Resources& resources);

  // When each action runs, as Schedule::per_worker lists them. Once.
  std::vector<std::vector<Interval>> run();

 private:
  struct Way {  // one cut in one direction
    int encoder = 0;
    int decoder = 0;
  };
  struct Road {  // from one worker to another
    int link = 0;
    int carrier_out = 0;
    int carrier_in = 0;
  };
  void add_way(Direction direction, int cut);
  int machine_of(int stage) const;
  int worker_of(int stage) const { return schedule_.placement.worker_of[static_cast<std::size_t>(stage)]; }
  bool input_there(const Action& action) const;
  void start_next(std::size_t worker);
  void finish(const Action& action);
  void send(Direction direction, int cut);
  void carry(Direction direction, int cut);
  void receive(Direction direction, int cut);
  void arrive(Direction direction, int stage);

  const Schedule& schedule_;
  const Costs& costs_;
  const Resources& resources_;
  Stations stations_;
  std::vector<int> threads_;                        // by worker
  std::vector<bool> working_;                       // by worker
  std::map<std::pair<Direction, int>, Way> ways_;   // by direction and cut, where it crosses
  std::map<std::pair<int, int>, Road> roads_;       // by workers
  std::map<Direction, std::vector<int>> arrived_;   // inputs so far, by stage
  std::vector<std::vector<Interval>> intervals_{};  // by worker
};

}  // namespace epipe::schedule
