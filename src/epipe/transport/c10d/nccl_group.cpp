#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>
#include <torch/cuda.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <set>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "epipe/transport/c10d/nccl_link.h"

namespace epipe::transport {
namespace {

class NcclGroup final : public Group {
 public:
  NcclGroup(const GroupConfig& config, Store store, std::shared_ptr<StoreKeyValues> key_values, c10::Device device)
      : config_(config),
        store_(std::move(store)),
        key_values_(std::move(key_values)),
        device_(device),
        group_(c10::make_intrusive<c10d::ProcessGroupNCCL>(prefixed("sums"), config.rank, config.size)),
        liveness_(prefixed("liveness"), config.rank, config.size) {}
  ~NcclGroup() override { group_->abort(); }

  int rank() const override { return config_.rank; }
  int size() const override { return config_.size; }
  torch::Device device() const override { return device_; }
  KeyValueStore& key_values() override { return *key_values_; }

  std::unique_ptr<Link> link(int peer, std::uint32_t channel) override {
    if (peer < 0 || peer >= size() || peer == rank()) {
      throw std::invalid_argument(fmt::format("expected another rank below {}, got {} (this is rank {})", size(), peer, rank()));
    }
    if (!used_.emplace(peer, channel).second) {
      throw std::invalid_argument(fmt::format("channel {} to rank {} was used before; take another", channel, peer));
    }
    const std::string name = fmt::format("link/{}-{}/{}", std::min(rank(), peer), std::max(rank(), peer), channel);
    return std::make_unique<NcclLink>(NcclLinkConfig{rank(), peer, channel, config_.max_message_bytes, device_}, prefixed(name), liveness_);
  }

  void all_reduce_sum(torch::Tensor& x) override {
    if (!x.device().is_cuda() || !x.is_contiguous()) throw std::invalid_argument("nccl sums contiguous tensors on CUDA devices");
    if (x.numel() == 0) return;
    const std::lock_guard lock(collective_);
    const c10::DeviceGuard guard(device_);
    const torch::NoGradGuard no_grad;
    sum_in_rank_order(*group_, x);
  }

  std::unique_ptr<Group> subgroup(const std::vector<int>& ranks, const std::string& name) override {
    return std::make_unique<NcclGroup>(subgroup_config(config_, ranks, name), prefixed("group/" + name), key_values_, device_);
  }

 private:
  Store prefixed(const std::string& name) { return c10::make_intrusive<c10d::PrefixStore>(name, store_); }

  const GroupConfig config_;
  Store store_;
  std::shared_ptr<StoreKeyValues> key_values_;
  const c10::Device device_;
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
  Liveness liveness_;
  std::set<std::pair<int, std::uint32_t>> used_;
  std::mutex collective_;
};

}  // namespace

std::unique_ptr<Group> make_nccl_group(const GroupConfig& config, Store store, std::shared_ptr<StoreKeyValues> key_values) {
  const auto devices = static_cast<int>(torch::cuda::device_count());
  if (devices == 0) throw std::runtime_error("nccl needs a CUDA device, and this machine has none");
  // c10d would abort the process when an operation takes long; links have their own timeouts.
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", 0);
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(config.local_rank % devices));
  return std::make_unique<NcclGroup>(config, std::move(store), std::move(key_values), device);
}

}  // namespace epipe::transport
