#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "epipe/transport/link.h"

namespace epipe::transport {

struct GroupConfig {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks on this machine
  std::string master_address = "127.0.0.1";
  int master_port = 0;
  std::string agent_prefix{};                 // of our keys in the store of torchrun's agent; empty: rank 0 keeps the store
  Timeout timeout = std::chrono::minutes(1);  // for the rendezvous and for a collective; links have their own timeouts
  std::string backend = "gloo";               // or "nccl": local rank r uses the CUDA device r modulo their number
  std::uint64_t max_message_bytes = std::uint64_t{1} << 32;
  std::vector<int> known_as{};  // for each rank of a subgroup, its rank in the whole run, for messages; empty: the same
};

// Reads the variables set by torchrun (RANK, WORLD_SIZE, LOCAL_RANK), mpirun (OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK) or srun
// (SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID), and MASTER_ADDR and MASTER_PORT; with TORCHELASTIC_USE_AGENT_STORE the store there is
// torchrun's. The local rank defaults to the rank. Throws std::invalid_argument that names the missing or wrong variable.
GroupConfig group_from_environment();

// Whether one of these launchers started this process.
bool launched_as_rank();

// A TCP port of this machine that is currently free.
int free_port();

}  // namespace epipe::transport
