#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "epipe/train/cluster.h"
#include "support/train_run.h"

namespace epipe::testing {

// What became of the ranks of a cluster: nothing, or what they threw.
using Ends = std::vector<std::string>;

// Rank 0 trains, the others follow; each is a thread of this process with gloo over the loopback between them. `change` makes a rank's
// configuration another one.
inline Ends train_as_cluster(
    const train::TrainConfig& config, const std::function<void(int rank, train::TrainConfig&)>& change = [](int, train::TrainConfig&) {}) {
  const int size = train::ranks_of(config);
  const int port = transport::free_port();
  Ends ends(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      train::TrainConfig own = config;
      own.reconnect = 0;
      change(rank, own);
      transport::GroupConfig place;
      place.rank = rank;
      place.size = size;
      place.master_port = port;
      place.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(own.timeout * 1000));
      try {
        const auto world = transport::make_group(place);
        auto cluster = train::join_cluster(own, *world);
        if (rank > 0) return train::participate(registry(), own, std::move(cluster));
        const auto connector = train::connect_ranks(cluster);
        Watcher watcher;
        train::train(registry(), own, watcher, watcher.stop, connector.get(), std::move(cluster.across));
      } catch (const std::exception& error) {
        ends[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return ends;
}

}  // namespace epipe::testing
