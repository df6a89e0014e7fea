#pragma once

#include <cstdint>
#include <exception>
#include <thread>

#include "epipe/base/queue.h"
#include "epipe/data/dataset.h"

namespace epipe::data {

// One batch and where it belongs.
struct LoadedBatch {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;  // over all epochs
  bool last_of_epoch = false;
  layer::Batch batch;
};

struct LoaderConfig {
  std::int64_t batch_size = 1;
  bool shuffle = true;
  std::uint64_t seed = 0;
  std::uint64_t first_step = 0;
  std::uint64_t end_step = 0;  // the step after the last
};

// Makes the batches of a run ahead of time, in a thread of its own. What batch a step gets depends on the configuration only, so a run
// that starts at first_step continues one that ended there.
class Loader {
 public:
  // The dataset outlives the loader.
  Loader(const Dataset& dataset, const LoaderConfig& config);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next batch; call it end_step - first_step times. Rethrows what the dataset threw.
  LoadedBatch next();

  static std::uint64_t steps_per_epoch(std::int64_t samples, std::int64_t batch_size);

 private:
  void run();

  const Dataset& dataset_;
  LoaderConfig config_;
  Queue<LoadedBatch> ready_{2};
  std::exception_ptr failure_;  // set before the queue is closed
  std::thread thread_;
};

}  // namespace epipe::data
