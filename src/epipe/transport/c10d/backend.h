#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "epipe/transport/c10d/store_key_values.h"
#include "epipe/transport/group.h"

// Shared by the backends. A backend that is not in the build is replaced by a source file that says so.
namespace epipe::transport {

using Store = c10::intrusive_ptr<c10d::Store>;

// The group owns all keys of `store`; `key_values` belongs to the run and is shared by a group and all its subgroups.
std::unique_ptr<Group> make_gloo_group(const GroupConfig& config, Store store, std::shared_ptr<StoreKeyValues> key_values);
std::unique_ptr<Group> make_nccl_group(const GroupConfig& config, Store store, std::shared_ptr<StoreKeyValues> key_values);

// This rank's configuration in a subgroup. Throws std::invalid_argument.
GroupConfig subgroup_config(const GroupConfig& config, const std::vector<int>& ranks, const std::string& name);

// Rank r receives part r from every rank, adds them in rank order, and sends the sum to all. Throws what c10d throws.
template <typename ProcessGroup>
void sum_in_rank_order(ProcessGroup& group, torch::Tensor& x) {
  const std::int64_t size = group.getSize();
  const std::int64_t part = (x.numel() + size - 1) / size;
  torch::Tensor padded = torch::zeros({size * part}, x.options().requires_grad(false));
  padded.narrow(0, 0, x.numel()).copy_(x.view(-1));
  torch::Tensor parts = torch::empty_like(padded);
  std::vector<std::int64_t> equal;
  group.alltoall_base(parts, padded, equal, equal)->wait();
  const torch::Tensor rows = parts.view({size, part});
  std::vector<torch::Tensor> mine{rows[0].clone()};
  for (std::int64_t r = 1; r < size; ++r) mine[0].add_(rows[r]);
  std::vector<std::vector<torch::Tensor>> sums(1);
  for (std::int64_t r = 0; r < size; ++r) sums[0].push_back(padded.narrow(0, r * part, part));
  group.allgather(sums, mine)->wait();
  x.view(-1).copy_(padded.narrow(0, 0, x.numel()));
}

}  // namespace epipe::transport
