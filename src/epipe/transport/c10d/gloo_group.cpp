#include "epipe/transport/c10d/gloo_group.h"

#include <fmt/format.h>

#include <csignal>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "epipe/transport/c10d/gloo_link.h"
#include "epipe/transport/c10d/interface.h"

namespace epipe::transport {
namespace {

constexpr std::uint32_t kMaxChannel = 0x7ffffffe;

// gloo writes to its sockets without MSG_NOSIGNAL: a rank that left would kill this process instead of causing a socket error. A handler
// installed by the program is kept.
void ignore_sigpipe() {
  struct sigaction now {};
  if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

GlooGroup::GlooGroup(const GroupConfig& config, Store store, std::shared_ptr<StoreKeyValues> key_values)
    : config_(config), store_(std::move(store)), key_values_(std::move(key_values)) {
  ignore_sigpipe();
  auto options = c10d::ProcessGroupGloo::Options::create(config_.timeout);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address_towards(config_.master_address)));
  options->threads = 2;
  group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store_, config_.rank, config_.size, options);
  for (int peer = 0; peer < config_.size; ++peer) {
    const int known_as = config_.known_as.empty() ? peer : config_.known_as[static_cast<std::size_t>(peer)];
    if (peer != config_.rank) peers_[peer] = std::make_unique<GlooPeer>(*group_, peer, known_as);
  }
}

// Destroys the connections before the memory of unfinished transfers.
GlooGroup::~GlooGroup() {
  for (auto& [rank, peer] : peers_) peer->stop();
  group_.reset();
}

std::unique_ptr<Link> GlooGroup::link(int peer, std::uint32_t channel) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) {
    throw std::invalid_argument(fmt::format("expected another rank below {}, got {} (this is rank {})", size(), peer, rank()));
  }
  if (channel > kMaxChannel) throw std::invalid_argument(fmt::format("expected a channel up to {}, got {}", kMaxChannel, channel));
  return std::make_unique<GlooLink>(*found->second, channel, config_.max_message_bytes);
}

void GlooGroup::all_reduce_sum(torch::Tensor& x) {
  if (!x.device().is_cpu() || !x.is_contiguous()) throw std::invalid_argument("gloo sums contiguous tensors on the CPU");
  if (size() == 1 || x.numel() == 0) return;
  const std::lock_guard lock(collective_);
  const at::NoGradGuard no_grad;
  try {
    sum_in_rank_order(*group_, x);
  } catch (const std::exception& failure) {
    fail_collective(failure.what());
  }
}

// gloo names a connection, not a rank; the peers' threads know which one broke, a little later.
void GlooGroup::fail_collective(const std::string& why) {
  for (int tries = 0; tries < 20; ++tries) {
    for (auto& [rank, peer] : peers_) {
      if (const auto reason = peer->lost(); !reason.empty()) throw ConnectionLost("all-reduce: " + reason);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  throw ConnectionLost("all-reduce: " + why.substr(0, why.find('\n')));
}

std::unique_ptr<Group> GlooGroup::subgroup(const std::vector<int>& ranks, const std::string& name) {
  const auto store = c10::make_intrusive<c10d::PrefixStore>("group/" + name, store_);
  return std::make_unique<GlooGroup>(subgroup_config(config_, ranks, name), store, key_values_);
}

std::unique_ptr<Group> make_gloo_group(const GroupConfig& config, Store store, std::shared_ptr<StoreKeyValues> key_values) {
  return std::make_unique<GlooGroup>(config, std::move(store), std::move(key_values));
}

}  // namespace epipe::transport
