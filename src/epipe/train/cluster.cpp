#include "epipe/train/cluster.h"

#include <fmt/format.h>

#include <numeric>
#include <stdexcept>

#include "epipe/session/worker_participant.h"
#include "epipe/train/make_plan.h"
#include "epipe/train/replica_participant.h"
#include "epipe/train/spec_trainer.h"

namespace epipe::train {
namespace {

using session::PeerConnector;
using transport::Group;

constexpr std::uint32_t kCommands = 0;
constexpr std::uint32_t kFirstChannel = 1;       // + cut
constexpr std::uint32_t kLeaders = 0x7000'0000;  // commands of rank 0 to the leaders of other replicas

// A rank that ends closes its sockets. This timeout is for a machine that disappears: while rank 0 lives, its commands are never so far
// apart.
constexpr transport::Timeout kIdle = std::chrono::hours(1);

std::uint32_t channel_of(int cut) { return kFirstChannel + static_cast<std::uint32_t>(cut); }

int workers_of(const TrainConfig& config) { return schedule::Placement{config.place}.workers(); }

transport::Timeout timeout_of(const TrainConfig& config) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(config.timeout * 1000));
}

// A cluster does not reconnect: one failed rank ends all, and the launcher starts them again.
class Ranks final : public PeerConnector {
 public:
  explicit Ranks(const Cluster& cluster) : cluster_(cluster) {}

  std::vector<int> workers() const override {
    std::vector<int> all(static_cast<std::size_t>(cluster_.workers) - 1);
    std::iota(all.begin(), all.end(), 1);
    return all;
  }
  std::vector<int> leaders() const override {
    std::vector<int> all;
    for (int r = 1; r < cluster_.replicas && cluster_.rank == 0; ++r) all.push_back(r * cluster_.workers);
    return all;
  }
  std::string name(int worker) const override {
    return fmt::format("rank {}", worker < cluster_.workers ? cluster_.rank + worker : worker);
  }
  std::vector<std::string> addresses() const override { return {}; }
  std::unique_ptr<transport::Link> command_channel(int worker) override {
    return worker < cluster_.workers ? cluster_.pipeline().link(worker, kCommands) : cluster_.world->link(worker, kLeaders);
  }
  std::unique_ptr<transport::Link> data_channel(int cut, int peer, std::uint64_t) override {
    return cluster_.pipeline().link(peer, channel_of(cut));
  }

 private:
  const Cluster& cluster_;
};

// The plan this rank would send if it were rank 0.
Plan own_plan(const Registry& registry, const TrainConfig& config) {
  const auto kind = registry.models.takes_text(config.model) ? data::DataSpec::Kind::kText : data::DataSpec::Kind::kImages;
  const Batches batches(registry, config, kind, 0);
  return make_plan(registry, config, registry.models.architecture(config.model, batches.spec(), config.seed), batches);
}

// One worker of a replica, commanded by its worker 0.
void participate_as_worker(const Registry& registry, const TrainConfig& config, Cluster cluster) {
  const Plan planned = own_plan(registry, config);
  nlohmann::json own = to_json(planned);
  SpecTrainerConfig trainer;
  trainer.loss = registry.losses.find(config.loss, planned.data);
  trainer.registry = &registry;
  trainer.admit = [&](const nlohmann::json& spec, int worker) {
    if (config.cuts.empty() && spec.contains("cuts")) own["cuts"] = spec["cuts"];  // rank 0 chose them
    const std::string different = differences(own, spec);
    if (!different.empty()) {
      throw std::invalid_argument(fmt::format("rank {} has another configuration: {}", cluster.rank - cluster.worker, different));
    }
    if (worker != cluster.worker) throw std::invalid_argument(fmt::format("this is worker {}, not {}", cluster.worker, worker));
  };
  if (!config.devices.empty()) trainer.device = device_of(config.devices.at(static_cast<std::size_t>(cluster.worker)), config.local_rank);
  trainer.codec_threads = config.codec_threads;
  trainer.graphs = config.graphs;
  trainer.replicas = std::move(cluster.across);
  trainer.bucket_bytes = static_cast<std::size_t>(config.bucket) << 10U;
  session::ParticipantConfig participant;
  make_trainers_from_specs(participant, std::move(trainer));
  participant.open_channel = [&](const session::ChannelRequest& request) {
    return cluster.pipeline().link(request.peer, channel_of(request.cut));
  };
  participant.checkpoints = fmt::format("{}/checkpoints/worker-{}", config.run_dir, cluster.rank);
  participant.timeout = timeout_of(config);
  participant.keep_checkpoints = true;
  session::WorkerParticipant here(std::move(participant));
  const auto commands = cluster.pipeline().link(0, kCommands);
  handle_commands(*commands, here, kIdle);
}

// Worker 0 of another replica than the first.
void participate_as_replica(const Registry& registry, const TrainConfig& config, Cluster cluster) {
  Ranks connector(cluster);
  ReplicaParticipant here(registry, config, connector, std::move(cluster.across));
  const auto commands = cluster.world->link(0, kLeaders);
  handle_commands(*commands, here, kIdle);
}

std::string agreed(int rank) { return fmt::format("agreed/{}", rank); }

// Compares settings that are not in the plan, which also goes to servers. Every rank compares its own with rank 0's and tells rank 0, so
// that each of them ends with the reason.
void compare_settings(const TrainConfig& config, Group& world) {
  transport::KeyValueStore& key_values = world.key_values();
  const nlohmann::json own = texts_of(config, {Scope::kClient, Scope::kClientMayChange});
  if (world.rank() > 0) {
    const auto theirs = nlohmann::json::parse(key_values.get("settings", timeout_of(config)), nullptr, /*allow_exceptions=*/false);
    const std::string different = differences(own, theirs);
    key_values.put(agreed(world.rank()), different);
    if (!different.empty()) throw std::invalid_argument("rank 0 has another configuration: " + different);
    return;
  }
  key_values.put("settings", own.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  for (int rank = 1; rank < world.size(); ++rank) {
    const std::string different = key_values.get(agreed(rank), timeout_of(config));
    if (!different.empty()) throw std::invalid_argument(fmt::format("rank {} has another configuration: {}", rank, different));
  }
}

}  // namespace

int ranks_of(const TrainConfig& config) { return config.replicas * workers_of(config); }

void check_ranks(const TrainConfig& config, int ranks) {
  const int needed = ranks_of(config);
  if (ranks == needed) return;
  const std::string have = ranks == 0 ? "this one was started alone" : fmt::format("there are {} (WORLD_SIZE)", ranks);
  throw std::invalid_argument(
      fmt::format("{} replicas (--replicas) of {} workers (--place) take {} processes, but {}; start them with "
                  "epipe launch -n {} -- train --replicas {} ...",
                  config.replicas, workers_of(config), needed, have, needed, config.replicas));
}

Cluster join_cluster(const TrainConfig& config, Group& world) {
  Cluster cluster;
  cluster.rank = world.rank();
  cluster.workers = workers_of(config);
  cluster.replicas = config.replicas;
  cluster.replica = cluster.rank / cluster.workers;
  cluster.worker = cluster.rank % cluster.workers;
  cluster.world = &world;
  const std::string numbers = fmt::format("{} replicas of {} workers", cluster.replicas, cluster.workers);
  if (cluster.rank == 0) world.key_values().put("numbers", numbers);
  const std::string theirs = world.key_values().get("numbers", timeout_of(config));
  if (theirs != numbers) throw std::invalid_argument(fmt::format("rank 0 has {}, rank {} has {}", theirs, cluster.rank, numbers));
  compare_settings(config, world);
  if (cluster.replicas == 1) return cluster;
  std::vector<int> own;
  std::vector<int> across;
  for (int w = 0; w < cluster.workers; ++w) own.push_back(cluster.replica * cluster.workers + w);
  for (int r = 0; r < cluster.replicas; ++r) across.push_back(r * cluster.workers + cluster.worker);
  if (cluster.workers > 1) cluster.own = world.subgroup(own, fmt::format("replica {}", cluster.replica));
  cluster.across = world.subgroup(across, fmt::format("worker {}", cluster.worker));
  return cluster;
}

std::unique_ptr<PeerConnector> connect_ranks(const Cluster& cluster) { return std::make_unique<Ranks>(cluster); }

void participate(const Registry& registry, const TrainConfig& config, Cluster cluster) {
  cluster.worker > 0 ? participate_as_worker(registry, config, std::move(cluster))
                     : participate_as_replica(registry, config, std::move(cluster));
}

}  // namespace epipe::train
