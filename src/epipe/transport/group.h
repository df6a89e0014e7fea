#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "epipe/transport/group_config.h"
#include "epipe/transport/link.h"

namespace epipe::transport {

// Small strings that all ranks of a run see. Any thread. Throws ConnectionLost when the rank that keeps them is gone.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual void put(const std::string& key, const std::string& value) = 0;
  // Waits until somebody put it. Throws TimedOut.
  virtual std::string get(const std::string& key, Timeout timeout) = 0;
};

// Processes that know each other by rank. Links and collectives may be used by several threads at once; a rank that died ends its
// links, and the collectives it takes part in, with ConnectionLost, which names it.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;  // within this group
  virtual int size() const = 0;
  // One end of a link to `peer`; both ends name the same channel, each channel once in the life of the group. Messages that were sent
  // before close() still arrive. The group outlives its links.
  virtual std::unique_ptr<Link> link(int peer, std::uint32_t channel) = 0;
  // Where tensors that are summed lie: on the CPU with gloo, on this rank's CUDA device with nccl.
  virtual torch::Device device() const = 0;
  // In place; all ranks call it in the same order with the same shape and type. Every element is the sum over the ranks in their order,
  // ((x0 + x1) + x2) + ..., whatever the size of the tensor.
  virtual void all_reduce_sum(torch::Tensor& x) = 0;
  // A group of `ranks` (of this group, in this order; this rank is one of them), which all of them make at the same time under the same
  // name, each name once.
  virtual std::unique_ptr<Group> subgroup(const std::vector<int>& ranks, const std::string& name) = 0;
  virtual KeyValueStore& key_values() = 0;  // shared with all subgroups
};

// Meets all other ranks at the master's address; rank 0 listens there. Throws std::invalid_argument for a wrong configuration, and
// std::runtime_error that names the ranks which did not come within the timeout.
std::unique_ptr<Group> make_group(const GroupConfig& config);

}  // namespace epipe::transport
