#include "epipe/transport/group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "epipe/base/clock.h"
#include "epipe/transport/c10d/backend.h"
#include "epipe/transport/c10d/tcp_store.h"

namespace epipe::transport {
namespace {

// c10d counts whole seconds, pauses for one between attempts to connect, and gives up if the next would come too late.
constexpr Timeout kLeastAgentTimeout = std::chrono::seconds(3);

void check_config(const GroupConfig& config) {
  if (config.size < 1 || config.rank < 0 || config.rank >= config.size) {
    throw std::invalid_argument(fmt::format("expected a rank below the number of ranks, got rank {} of {}", config.rank, config.size));
  }
  if (config.backend != "gloo" && config.backend != "nccl") {
    throw std::invalid_argument(fmt::format("expected the backend gloo or nccl, got '{}'", config.backend));
  }
  const int least = config.size == 1 ? 0 : 1;
  if (config.master_port < least || config.master_port > 65535) {
    throw std::invalid_argument(fmt::format("expected a master port from 1 to 65535, got {}", config.master_port));
  }
}

// The store of torchrun's agent, which speaks c10d's protocol.
Store open_agent_store(const GroupConfig& config) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(config.master_port);
  options.isServer = false;
  options.waitWorkers = false;
  options.timeout = std::max<Timeout>(config.timeout, kLeastAgentTimeout);
  return c10::make_intrusive<c10d::PrefixStore>(config.agent_prefix, c10::make_intrusive<c10d::TCPStore>(config.master_address, options));
}

std::shared_ptr<StoreServer> serve_store(const GroupConfig& config) {
  if (config.rank > 0) return nullptr;
  try {
    return std::make_shared<StoreServer>(config.master_address, config.master_port);
  } catch (const std::exception& failure) {
    throw std::runtime_error(fmt::format("rank 0: cannot listen on {}:{} ({}); set MASTER_PORT to a port that is free",
                                         config.master_address, config.master_port, failure.what()));
  }
}

// Rank 0 keeps it, or torchrun's agent. A run of one rank needs no network.
Store open_store(const GroupConfig& config) {
  if (config.size == 1) return c10::make_intrusive<c10d::HashStore>();
  auto server = config.agent_prefix.empty() ? serve_store(config) : nullptr;
  try {
    if (!config.agent_prefix.empty()) return open_agent_store(config);
    return c10::make_intrusive<TcpStore>(config.master_address, config.master_port, config.timeout, std::move(server));
  } catch (const std::exception& failure) {
    const std::string why = failure.what();
    throw std::runtime_error(fmt::format("rank {}: {} did not answer at {}:{} ({})", config.rank,
                                         config.agent_prefix.empty() ? "rank 0" : "torchrun's agent", config.master_address,
                                         config.master_port, why.substr(0, why.find('\n'))));
  }
}

std::string here(int rank) { return fmt::format("here/{}", rank); }

// Waits for the others, so that the error can name those that did not come.
void meet(StoreKeyValues& key_values, const GroupConfig& config) {
  const Stopwatch watch;
  key_values.put(here(config.rank), "1");
  std::vector<int> missing;
  for (int rank = 0; rank < config.size; ++rank) {
    const auto left = config.timeout - Timeout(static_cast<Timeout::rep>(1000 * watch.seconds()));
    try {
      key_values.get(here(rank), std::max(left, Timeout(0)));
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
  check_config(config);
  const Store store = open_store(config);
  StoreKeyValues rendezvous(c10::make_intrusive<c10d::PrefixStore>("rendezvous", store));
  meet(rendezvous, config);
  const auto key_values = std::make_shared<StoreKeyValues>(c10::make_intrusive<c10d::PrefixStore>("key_values", store));
  const Store world = c10::make_intrusive<c10d::PrefixStore>("world", store);
  return config.backend == "nccl" ? make_nccl_group(config, world, key_values) : make_gloo_group(config, world, key_values);
}

GroupConfig subgroup_config(const GroupConfig& config, const std::vector<int>& ranks, const std::string& name) {
  const auto known = [&](int r) { return r >= 0 && r < config.size && std::count(ranks.begin(), ranks.end(), r) == 1; };
  const auto found = std::find(ranks.begin(), ranks.end(), config.rank);
  if (found == ranks.end() || !std::all_of(ranks.begin(), ranks.end(), known)) {
    throw std::invalid_argument(
        fmt::format("group {}: expected different ranks below {}, this one ({}) among them", name, config.size, config.rank));
  }
  GroupConfig made = config;
  made.rank = static_cast<int>(found - ranks.begin());
  made.size = static_cast<int>(ranks.size());
  made.known_as.clear();
  for (const int r : ranks) made.known_as.push_back(config.known_as.empty() ? r : config.known_as[static_cast<std::size_t>(r)]);
  return made;
}

}  // namespace epipe::transport
