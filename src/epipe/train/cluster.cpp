#include "epipe/train/cluster.h"

#include <fmt/format.h>

#include <stdexcept>

#include "epipe/train/follower.h"
#include "epipe/train/run.h"

namespace epipe::train {
namespace {

using transport::Group;

constexpr std::uint32_t kCommands = 0;
constexpr std::uint32_t kFirstWay = 1;  // + cut

std::uint32_t channel_of(int cut) { return kFirstWay + static_cast<std::uint32_t>(cut); }

// A cluster does not reconnect: one failed rank ends all, and the launcher starts them again.
class Ranks final : public Reach {
 public:
  explicit Ranks(Group& group) : group_(group) {}

  std::vector<int> workers() const override {
    std::vector<int> all;
    for (int rank = 1; rank < group_.size(); ++rank) all.push_back(rank);
    return all;
  }
  std::string name(int worker) const override { return fmt::format("rank {}", worker); }
  std::vector<std::string> addresses() const override { return {}; }
  std::unique_ptr<transport::Link> command(int worker) override { return group_.link(worker, kCommands); }
  std::unique_ptr<transport::Link> way(int cut, int peer, std::uint64_t) override { return group_.link(peer, channel_of(cut)); }

 private:
  Group& group_;
};

}  // namespace

std::unique_ptr<Reach> reach_ranks(Group& group) { return std::make_unique<Ranks>(group); }

void follow_rank_zero(const TrainConfig& config, Group& group) {
  nlohmann::json own = to_json(Run(config, nullptr, nullptr).plan());
  FollowerConfig follower;
  follower.admit = [&](const nlohmann::json& plan, int worker) {
    if (config.cuts.empty() && plan.contains("cuts")) own["cuts"] = plan["cuts"];  // rank 0 chose them
    const std::string different = differences(own, plan);
    if (!different.empty()) throw std::invalid_argument("rank 0 has another configuration: " + different);
    if (worker != group.rank()) throw std::invalid_argument(fmt::format("this is rank {}, not {}", group.rank(), worker));
  };
  follower.way = [&](const WayRequest& way) { return group.link(way.peer, channel_of(way.cut)); };
  follower.checkpoints = fmt::format("{}/checkpoints/worker-{}", config.run_dir, group.rank());
  if (!config.devices.empty()) follower.device = torch::Device(config.devices.at(static_cast<std::size_t>(group.rank())));
  follower.patience = std::chrono::milliseconds(static_cast<std::int64_t>(config.timeout * 1000));
  follower.keep_checkpoints = true;
  Follower here(follower);
  const auto commands = group.link(0, kCommands);
  follow(*commands, here, transport::kForever);
}

}  // namespace epipe::train
