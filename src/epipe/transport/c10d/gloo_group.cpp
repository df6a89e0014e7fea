#include "epipe/transport/c10d/gloo_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "epipe/transport/c10d/gloo_link.h"
#include "epipe/transport/c10d/interface.h"

namespace epipe::transport {
namespace {

constexpr std::uint32_t kMaxChannel = 0x7ffffffe;

}  // namespace

GlooGroup::GlooGroup(const GroupConfig& config, c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<StoreBoard> board)
    : config_(config), store_(std::move(store)), board_(std::move(board)) {
  auto options = c10d::ProcessGroupGloo::Options::create(config_.timeout);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address_towards(config_.master_address)));
  options->threads = 2;
  group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store_, config_.rank, config_.size, options);
  for (int peer = 0; peer < config_.size; ++peer) {
    if (peer != config_.rank) peers_[peer] = std::make_unique<GlooPeer>(*group_, peer);
  }
}

// The connections go before the memory of transfers that were never finished.
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
    sum_in_rank_order(x);
  } catch (const std::exception& failure) {
    fail_collective(failure.what());
  }
}

// Rank r gets everybody's part r, adds them in the order of the ranks, and sends the sum to all.
void GlooGroup::sum_in_rank_order(torch::Tensor& x) {
  const std::int64_t part = (x.numel() + size() - 1) / size();
  torch::Tensor padded = at::zeros({size() * part}, x.options().requires_grad(false));
  padded.narrow(0, 0, x.numel()).copy_(x.view(-1));
  torch::Tensor parts = at::empty_like(padded);
  std::vector<std::int64_t> equal;
  group_->alltoall_base(parts, padded, equal, equal)->wait();
  const torch::Tensor rows = parts.view({size(), part});
  std::vector<torch::Tensor> mine{rows[0].clone()};
  for (int r = 1; r < size(); ++r) mine[0].add_(rows[r]);
  std::vector<std::vector<torch::Tensor>> sums(1);
  for (int r = 0; r < size(); ++r) sums[0].push_back(padded.narrow(0, r * part, part));
  group_->allgather(sums, mine)->wait();
  x.view(-1).copy_(padded.narrow(0, 0, x.numel()));
}

// gloo names a connection, not a rank; the peers' threads know which one broke, a little later.
void GlooGroup::fail_collective(const std::string& why) {
  for (int tries = 0; tries < 20; ++tries) {
    for (auto& [rank, peer] : peers_) {
      if (const auto reason = peer->lost(); !reason.empty()) throw Lost("all-reduce: " + reason);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  throw Lost("all-reduce: " + why.substr(0, why.find('\n')));
}

std::unique_ptr<Group> GlooGroup::subgroup(const std::vector<int>& ranks, const std::string& name) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank());
  const bool known = std::all_of(ranks.begin(), ranks.end(), [this](int r) { return r >= 0 && r < size(); });
  const bool once = std::all_of(ranks.begin(), ranks.end(), [&](int r) { return std::count(ranks.begin(), ranks.end(), r) == 1; });
  if (found == ranks.end() || !known || !once) {
    throw std::invalid_argument(fmt::format("group {}: expected different ranks below {}, this one ({}) among them", name, size(), rank()));
  }
  GroupConfig config = config_;
  config.rank = static_cast<int>(found - ranks.begin());
  config.size = static_cast<int>(ranks.size());
  const auto store = c10::make_intrusive<c10d::PrefixStore>("group/" + name, store_);
  return std::make_unique<GlooGroup>(config, store, board_);
}

}  // namespace epipe::transport
