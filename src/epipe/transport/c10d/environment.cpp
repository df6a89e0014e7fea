#include "epipe/transport/group_config.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <random>
#include <stdexcept>
#include <utility>

namespace epipe::transport {
namespace {

// Variable names of torchrun, mpirun and srun, in the order they are looked for.
constexpr std::array kRankNames{"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"};
constexpr std::array kSizeNames{"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"};
constexpr std::array kLocalRankNames{"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"};

struct Variable {
  std::string name;
  std::string value;
};

template <std::size_t N>
std::optional<Variable> find(const std::array<const char*, N>& names) {
  for (const char* const name : names) {
    if (const char* const value = std::getenv(name)) return Variable{name, value};
  }
  return std::nullopt;
}

template <std::size_t N>
Variable require(const std::array<const char*, N>& names) {
  auto found = find(names);
  if (found) return std::move(*found);
  throw std::invalid_argument(fmt::format(
      "expected the environment variable {}; start the workers with epipe launch, torchrun, mpirun or srun", fmt::join(names, " or ")));
}

int number(const Variable& variable, int least, int most) {
  int value = -1;
  const auto& text = variable.value;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw std::invalid_argument(fmt::format("{}: expected a number from {} to {}, got '{}'", variable.name, least, most, text));
  }
  return value;
}

// As torch.distributed reads it: each restart of the workers has its own keys.
std::string agent_prefix() {
  const auto uses_agent = find(std::array{"TORCHELASTIC_USE_AGENT_STORE"});
  if (!uses_agent || uses_agent->value != "True") return {};
  const auto restarts = find(std::array{"TORCHELASTIC_RESTART_COUNT"});
  return fmt::format("/worker/attempt_{}", restarts ? restarts->value : "0");
}

// The port a socket gets when it binds to this one (0: any); nullopt if it is taken.
std::optional<int> bound_port(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const bool found = fd >= 0 && ::bind(fd, generic, size) == 0 && ::getsockname(fd, generic, &size) == 0;
  if (fd >= 0) ::close(fd);
  return found ? std::optional<int>(ntohs(address.sin_port)) : std::nullopt;
}

}  // namespace

bool launched_as_rank() { return find(kRankNames).has_value(); }

GroupConfig group_from_environment() {
  constexpr int kMaxRanks = 1 << 16;
  GroupConfig config;
  config.size = number(require(kSizeNames), 1, kMaxRanks);
  config.rank = number(require(kRankNames), 0, config.size - 1);
  const auto local = find(kLocalRankNames);
  config.local_rank = local ? number(*local, 0, config.size - 1) : config.rank;
  config.master_address = require(std::array{"MASTER_ADDR"}).value;
  if (config.master_address.empty()) throw std::invalid_argument("MASTER_ADDR: expected a host name or address, got nothing");
  config.master_port = number(require(std::array{"MASTER_PORT"}), 1, 65535);
  config.agent_prefix = agent_prefix();
  return config;
}

int free_port() {
  // Below the ephemeral range: an outgoing connection could take a port from there before the caller uses it.
  constexpr int kFirst = 10000;
  constexpr int kCount = 20000;
  constexpr int kTries = 100;
  std::random_device random;
  std::uniform_int_distribution<int> any(kFirst, kFirst + kCount - 1);
  for (int i = 0; i < kTries; ++i) {
    if (const auto port = bound_port(any(random))) return *port;
  }
  const auto port = bound_port(0);
  if (!port) throw std::runtime_error("no free TCP port");
  return *port;
}

}  // namespace epipe::transport
