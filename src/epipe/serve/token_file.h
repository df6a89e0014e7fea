#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epipe/base/result.h"

// The tokens of a server that several people share, a line for each:
//
//   NAME  HASH[,HASH]  [LIMIT=NUMBER ...]      # HASH: SHA-256 of the token, 64 hex digits; two while it is replaced
//
// Limits: sessions (at once), memory (GB of each session), gb-per-day (both ways), seconds-per-day (of the device), weight (of the CPU).
namespace epipe::serve {

// One of the people who share a server.
struct Client {
  std::string name;                 // a-z, 0-9, -, _ and ., at most 32
  std::vector<std::string> hashes;  // of the tokens it may show
  std::optional<int> sessions;      // at once
  std::uint64_t memory_bytes = 0;   // of each session; 0: as the server has it
  std::uint64_t bytes_per_day = 0;  // between its clients and their sessions; 0: no limit
  double seconds_per_day = 0;       // of the device; 0: no limit
  int weight = 0;                   // of its sessions where the CPU is short; 0: 1, as for everybody else
};

bool is_client_name(std::string_view text);
// Errors name the line, and never quote a hash.
Result<std::vector<Client>> parse_token_file(std::string_view text);
// An error for a file that others than its owner can read as well.
Result<std::vector<Client>> read_token_file(const std::string& path);
// Adds a client with a new token and returns the token, which is stored nowhere: the file has its hash. Makes the file where there is none.
// A name that is there is an error.
Result<std::string> add_token(const std::string& path, const std::string& name);

}  // namespace epipe::serve
