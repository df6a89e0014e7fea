#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epipe/base/result.h"

// The tokens of a server shared by several people, one per line:
//
//   NAME  HASH[,HASH]  [LIMIT=NUMBER ...]      # HASH: SHA-256 of the token, 64 hex digits; two while it is replaced
//
// Limits: sessions (at once), memory (GB of each session), gb-per-day (both ways), seconds-per-day (of the device), weight (of the CPU).
namespace epipe::serve {

// One of the people who share a server.
struct Client {
  std::string name;                 // a-z, 0-9, -, _ and ., at most 32
  std::vector<std::string> hashes;  // of its valid tokens
  std::optional<int> sessions;      // at once
  std::uint64_t memory_bytes = 0;   // of each session; 0: the server's limit
  std::uint64_t bytes_per_day = 0;  // between its clients and their sessions; 0: no limit
  double seconds_per_day = 0;       // of the device; 0: no limit
  int weight = 0;                   // of its sessions on a busy CPU; 0: 1, the default
};

bool is_client_name(std::string_view text);
// Errors name the line, and never quote a hash.
Result<std::vector<Client>> parse_token_file(std::string_view text);
// An error if users other than its owner can read the file.
Result<std::vector<Client>> read_token_file(const std::string& path);
// Adds a client with a new token and returns the token, which is not stored: the file has its hash. Creates the file if there is none. An
// existing name is an error.
Result<std::string> add_token(const std::string& path, const std::string& name);

}  // namespace epipe::serve
