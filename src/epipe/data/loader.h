#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "epipe/data/dataset.h"

namespace epipe::data {

// One batch and its position in the run.
struct LoadedBatch {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;  // over all epochs
  bool last_of_epoch = false;
  std::int64_t samples = 0;  // in the whole batch
  std::int64_t terms = 0;    // in its loss: layer::loss_terms() of the whole batch
  layer::Batch batch;        // this loader's shard of it; may be empty
};

struct LoaderConfig {
  std::int64_t batch_size = 1;
  bool shuffle = true;
  std::uint64_t seed = 0;
  std::uint64_t first_step = 0;
  std::uint64_t end_step = 0;  // the step after the last
  int threads = 1;
  int shard = 0;  // of `shards`: which part of every batch is loaded
  int shards = 1;
};

// A contiguous part of a batch, from sample `begin` on.
struct Shard {
  std::int64_t begin = 0;
  std::int64_t size = 0;
};
// As equal as possible; the first `samples mod shards` have one sample more.
Shard shard_of(std::int64_t samples, int shard, int shards);

// Prepares the batches of a run ahead of time, each on one of its threads. A step's batch depends only on the configuration, without the
// number of threads, so a run that starts at first_step continues one that ended there. Holds at most threads + 2 batches.
//
//   thread 0   |step 0      |step 2        |step 3 ...
//   thread 1   |step 1           |step 4 ...               next(): step 0, step 1, step 2, ...
class Loader {
 public:
  // The dataset outlives the loader.
  Loader(const Dataset& dataset, const LoaderConfig& config);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next batch; call it end_step - first_step times. Rethrows the dataset's exception for that batch; every later call does, too.
  LoadedBatch next();

  static std::uint64_t steps_per_epoch(std::int64_t samples, std::int64_t batch_size);

 private:
  using Order = std::shared_ptr<const std::vector<std::int64_t>>;  // shared by the threads that load its epoch
  struct Made {
    LoadedBatch loaded;
    std::exception_ptr failure;
  };

  void run();
  Order order_of(std::uint64_t epoch);
  Made make(std::uint64_t step, const Order& order) const;

  const Dataset& dataset_;
  const LoaderConfig config_;
  const std::uint64_t per_epoch_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable room_;
  std::condition_variable filled_;
  std::map<std::uint64_t, Made> made_;  // by step
  std::uint64_t claimed_;               // the first step no thread has taken
  std::uint64_t wanted_;                // the step next() returns
  bool stop_ = false;
  Order order_;
  std::uint64_t ordered_epoch_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace epipe::data
