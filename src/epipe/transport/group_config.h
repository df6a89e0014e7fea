#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "epipe/transport/link.h"

namespace epipe::transport {

struct GroupConfig {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this machine
  std::string master_address = "127.0.0.1";
  int master_port = 0;
  std::string agent_prefix{};                 // of our keys in the store that torchrun's agent keeps there; empty: rank 0 keeps one
  Timeout timeout = std::chrono::minutes(1);  // for all ranks to meet, and for a collective; links wait as long as they are asked to
  std::string backend = "gloo";               // or "nccl": local rank r uses the CUDA device r modulo their number
  std::uint64_t max_message_bytes = std::uint64_t{1} << 32;
  std::vector<int> known_as{};  // by rank of a subgroup, the ranks of the whole run, for messages; empty: their own
};

// The place of this process as torchrun (RANK, WORLD_SIZE, LOCAL_RANK), mpirun (OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK) or srun
// (SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID) set it, and MASTER_ADDR and MASTER_PORT; with TORCHELASTIC_USE_AGENT_STORE
// the store there is torchrun's. Without a local rank it is the rank. Throws
// std::invalid_argument that names the missing or wrong variable.
GroupConfig group_from_environment();

// Whether one of these launchers started this process.
bool launched_as_rank();

// A TCP port of this machine on which nobody listens at the moment.
int free_port();

}  // namespace epipe::transport
