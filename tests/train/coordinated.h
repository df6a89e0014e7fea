#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "support/machines.h"
#include "support/temp_folder.h"
#include "support/train_run.h"

// Runs whose workers are in several processes, and the placements and codecs that they are tried with.
namespace epipe::testing {

inline train::TrainConfig coordinated_run(const std::vector<int>& place, const std::string& codec, const std::string& run_dir) {
  train::TrainConfig config = small_run(run_dir);
  config.place = place;
  config.chunks = 2;
  config.codec = codec;
  config.max_steps = 8;
  config.checkpoint_every = 3;
  config.audit_share = 10;  // of a codec auto: before nearly every step
  config.timeout = 60;  // what is lost is noticed at once, also on a machine with other work to do
  config.reconnect = 120;
  return config;
}

inline int workers_of(const std::vector<int>& place) { return *std::max_element(place.begin(), place.end()) + 1; }

class Coordinated : public ::testing::TestWithParam<std::pair<std::vector<int>, std::string>> {
 protected:
  train::TrainConfig config(const std::string& name) const {
    return coordinated_run(GetParam().first, GetParam().second, folder_.file(name));
  }
  int workers() const { return workers_of(GetParam().first); }
  // The run directory of the run with all workers in one process.
  std::string undisturbed() const {
    run(config("one"));
    return folder_.file("one");
  }

  TempFolder folder_;
};

inline auto rings_and_chains() {
  using Place = std::vector<int>;
  return ::testing::Values(std::pair{Place{0, 1, 0}, std::string("none")}, std::pair{Place{0, 1, 0}, std::string("sort:6+2")},
                           std::pair{Place{0, 1, 0}, std::string("power:2")}, std::pair{Place{0, 1, 2}, std::string("sort:6+2")},
                           std::pair{Place{0, 1, 2, 0}, std::string("power:2")}, std::pair{Place{0, 1, 2, 3}, std::string("none")},
                           std::pair{Place{0, 1, 0}, std::string("auto")});
}

}  // namespace epipe::testing
