#include "epipe/transport/c10d/group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "epipe/base/clock.h"
#include "epipe/transport/c10d/gloo_group.h"
#include "epipe/transport/c10d/store_board.h"

namespace epipe::transport {
namespace {

using Store = c10::intrusive_ptr<c10d::Store>;

// c10d counts whole seconds, pauses for one between two attempts to connect, and gives up when the next would come too late.
constexpr Patience kLeastStoreTimeout = std::chrono::seconds(3);

void check(const GroupConfig& config) {
  if (config.size < 1 || config.rank < 0 || config.rank >= config.size) {
    throw std::invalid_argument(fmt::format("expected a rank below the number of ranks, got rank {} of {}", config.rank, config.size));
  }
  const int least = config.size == 1 ? 0 : 1;
  if (config.master_port < least || config.master_port > 65535) {
    throw std::invalid_argument(fmt::format("expected a master port from 1 to 65535, got {}", config.master_port));
  }
}

// Rank 0 keeps it. A run of one rank needs no network.
Store open_store(const GroupConfig& config) {
  if (config.size == 1) return c10::make_intrusive<c10d::HashStore>();
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(config.master_port);
  options.isServer = config.rank == 0;
  options.waitWorkers = false;
  options.timeout = std::max<Patience>(config.timeout, kLeastStoreTimeout);
  try {
    return c10::make_intrusive<c10d::TCPStore>(config.master_address, options);
  } catch (const std::exception& failure) {
    const std::string why = failure.what();
    throw std::runtime_error(fmt::format("rank {}: {} {}:{} ({})", config.rank,
                                         config.rank == 0 ? "cannot listen on" : "rank 0 did not answer at", config.master_address,
                                         config.master_port, why.substr(0, why.find('\n'))));
  }
}

std::string here(int rank) { return fmt::format("here/{}", rank); }

// Waits for the others, so that the error can name those that did not come.
void meet(StoreBoard& board, const GroupConfig& config) {
  const Stopwatch watch;
  board.put(here(config.rank), "1");
  std::vector<int> missing;
  for (int rank = 0; rank < config.size; ++rank) {
    const auto left = config.timeout - Patience(static_cast<Patience::rep>(1000 * watch.seconds()));
    try {
      board.get(here(rank), std::max(left, Patience(0)));
    } catch (const TimedOut&) {
      missing.push_back(rank);
    }
  }
  if (missing.empty()) return;
  throw std::runtime_error(fmt::format("rank {}: waited {} s for {} ranks; missing: {}", config.rank,
                                       static_cast<double>(config.timeout.count()) / 1000, config.size, fmt::join(missing, ", ")));
}

}  // namespace

std::unique_ptr<Group> make_group(const GroupConfig& config) {
  check(config);
  if (config.backend != "gloo") throw std::invalid_argument(fmt::format("expected the backend gloo, got '{}'", config.backend));
  const Store store = open_store(config);
  StoreBoard hall(c10::make_intrusive<c10d::PrefixStore>("hall", store));
  meet(hall, config);
  const auto board = std::make_shared<StoreBoard>(c10::make_intrusive<c10d::PrefixStore>("board", store));
  return std::make_unique<GlooGroup>(config, c10::make_intrusive<c10d::PrefixStore>("world", store), board);
}

}  // namespace epipe::transport
