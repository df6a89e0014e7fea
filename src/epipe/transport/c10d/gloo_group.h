#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "epipe/transport/c10d/gloo_peer.h"
#include "epipe/transport/c10d/group.h"
#include "epipe/transport/c10d/store_board.h"

namespace epipe::transport {

class GlooGroup final : public Group {
 public:
  // The store's keys are all this group's own; the board is that of the run, shared by all groups made from one another.
  GlooGroup(const GroupConfig& config, c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<StoreBoard> board);
  ~GlooGroup() override;

  int rank() const override { return config_.rank; }
  int size() const override { return config_.size; }
  std::unique_ptr<Link> link(int peer, std::uint32_t channel) override;
  void all_reduce_sum(torch::Tensor& x) override;
  std::unique_ptr<Group> subgroup(const std::vector<int>& ranks, const std::string& name) override;
  Board& board() override { return *board_; }

 private:
  void sum_in_rank_order(torch::Tensor& x);
  [[noreturn]] void fail_collective(const std::string& why);

  const GroupConfig config_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<StoreBoard> board_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  std::map<int, std::unique_ptr<GlooPeer>> peers_;
  std::mutex collective_;  // c10d matches collectives by their order
};

}  // namespace epipe::transport
