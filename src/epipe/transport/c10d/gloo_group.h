#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "epipe/transport/c10d/backend.h"
#include "epipe/transport/c10d/gloo_peer.h"

namespace epipe::transport {

class GlooGroup final : public Group {
 public:
  GlooGroup(const GroupConfig& config, Store store, std::shared_ptr<StoreKeyValues> key_values);
  ~GlooGroup() override;

  int rank() const override { return config_.rank; }
  int size() const override { return config_.size; }
  torch::Device device() const override { return torch::kCPU; }
  std::unique_ptr<Link> link(int peer, std::uint32_t channel) override;
  void all_reduce_sum(torch::Tensor& x) override;
  std::unique_ptr<Group> subgroup(const std::vector<int>& ranks, const std::string& name) override;
  KeyValueStore& key_values() override { return *key_values_; }

 private:
  [[noreturn]] void fail_collective(const std::string& why);

  const GroupConfig config_;
  Store store_;
  std::shared_ptr<StoreKeyValues> key_values_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  std::map<int, std::unique_ptr<GlooPeer>> peers_;
  std::mutex collective_;  // c10d matches collectives by their order
};

}  // namespace epipe::transport
