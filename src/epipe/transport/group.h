#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "epipe/transport/group_config.h"
#include "epipe/transport/link.h"

namespace epipe::transport {

// Small strings visible to all ranks of a run. Any thread. Throws ConnectionLost when the rank that keeps them is gone.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual void put(const std::string& key, const std::string& value) = 0;
  // Waits until the key is put. Throws TimedOut.
  virtual std::string get(const std::string& key, Timeout timeout) = 0;
};

// Processes that know each other by rank. Links and collectives may be used by several threads at once; if a rank dies, its links and the
// collectives it takes part in end with ConnectionLost, which names it.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;  // within this group
  virtual int size() const = 0;
  // Opens one end of a link to `peer`; both ends name the same channel, and each channel may be used once in the life of the group.
  // Messages sent before close() still arrive. The group outlives its links.
  virtual std::unique_ptr<Link> link(int peer, std::uint32_t channel) = 0;
  // The device of tensors to sum: the CPU with gloo, this rank's CUDA device with nccl.
  virtual torch::Device device() const = 0;
  // In place; all ranks call it in the same order with the same shape and type. Every element is summed in rank order,
  // ((x0 + x1) + x2) + ..., whatever the size of the tensor.
  virtual void all_reduce_sum(torch::Tensor& x) = 0;
  // Makes a group of `ranks` (of this group, in this order, this rank included). All of them call it at the same time with the same name;
  // each name may be used once.
  virtual std::unique_ptr<Group> subgroup(const std::vector<int>& ranks, const std::string& name) = 0;
  virtual KeyValueStore& key_values() = 0;  // shared with all subgroups
};

// Meets all other ranks at the master address, where rank 0 listens. Throws std::invalid_argument for a wrong configuration, and
// std::runtime_error that names the ranks missing after the timeout.
std::unique_ptr<Group> make_group(const GroupConfig& config);

}  // namespace epipe::transport
