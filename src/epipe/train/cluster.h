#pragma once

#include <memory>
#include <string>

#include "epipe/session/peer_connector.h"
#include "epipe/train/config.h"
#include "epipe/train/registry.h"
#include "epipe/transport/group.h"

namespace epipe::train {

// The place of this process among R replicas of W workers: rank = replica * W + worker.
//
//   rank      0   1   2   3        W = 2, R = 2: ranks 0 and 2 lead their replicas, rank 0 leads the run
//   replica   0   0   1   1        data channels and commands within a replica, gradients between ranks 0 and 2, and between 1 and 3
//   worker    0   1   0   1
struct Cluster {
  int rank = 0;
  int replica = 0;
  int worker = 0;
  int workers = 1;  // of a replica
  int replicas = 1;
  transport::Group* world = nullptr;           // outlives the cluster
  std::unique_ptr<transport::Group> own{};     // the workers of this replica; null: all of the world, or this one alone
  std::unique_ptr<transport::Group> across{};  // this worker in all replicas; null: there is one
  transport::Group& pipeline() const { return own ? *own : *world; }
};

// The number of ranks a configuration needs; check_ranks throws std::invalid_argument that says how to start them if `ranks` differs.
int ranks_of(const TrainConfig& config);
void check_ranks(const TrainConfig& config, int ranks);

// Joins this rank's groups, together with all other ranks. Throws std::invalid_argument if rank 0 has other numbers of workers or replicas.
Cluster join_cluster(const TrainConfig& config, transport::Group& world);

// For rank 0: connects to the other workers of its replica, and the leaders of the other replicas.
std::unique_ptr<session::PeerConnector> connect_ranks(const Cluster& cluster);

// Runs any rank but 0: handles commands until the run has ended. Its configuration must equal rank 0's. Throws the error that ended it.
void participate(const Registry& registry, const TrainConfig& config, Cluster cluster);

}  // namespace epipe::train
