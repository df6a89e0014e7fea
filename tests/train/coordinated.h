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
  config.timeout = 60;      // what is lost is noticed at once, also on a machine with other work to do
  config.reconnect = 120;
  return config;
}

struct Coordination {
  std::vector<int> place;
  std::string codec;
  int delay = 0;

  friend void PrintTo(const Coordination& c, std::ostream* out) {
    *out << ::testing::PrintToString(c.place) << ", " << c.codec << (c.delay > 0 ? ", delay" : "");
  }
};

inline int workers_of(const std::vector<int>& place) { return *std::max_element(place.begin(), place.end()) + 1; }

class Coordinated : public ::testing::TestWithParam<Coordination> {
 protected:
  train::TrainConfig config(const std::string& name) const {
    train::TrainConfig config = coordinated_run(GetParam().place, GetParam().codec, folder_.file(name));
    config.delay = GetParam().delay;
    if (config.delay > 0) config.clip = 0;
    return config;
  }
  int workers() const { return workers_of(GetParam().place); }
  // The run directory of the run with all workers in one process.
  std::string undisturbed() const {
    run(config("one"));
    return folder_.file("one");
  }

  TempFolder folder_;
};

inline auto rings_and_chains() {
  return ::testing::Values(Coordination{{0, 1, 0}, "none"}, Coordination{{0, 1, 0}, "sort:6+2"}, Coordination{{0, 1, 0}, "power:2"},
                           Coordination{{0, 1, 2}, "sort:6+2"}, Coordination{{0, 1, 2, 0}, "power:2"}, Coordination{{0, 1, 2, 3}, "none"},
                           Coordination{{0, 1, 0}, "auto"}, Coordination{{0, 1, 0}, "power:2", 1}, Coordination{{0, 1, 2, 0}, "power:2", 1},
                           Coordination{{0, 1, 2, 3}, "none", 1}, Coordination{{0, 1, 0, 1, 0}, "dct:1", 1});
}

}  // namespace epipe::testing
