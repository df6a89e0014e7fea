#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace epipe::cli {

struct DoctorFlags {
  std::string listen;        // empty: not looked at
  std::string tls;           // likewise
  std::string folder = ".";  // on the disk that matters
};

// What was found, and what to do about it.
struct Finding {
  enum class Level : std::uint8_t { kFine, kWarning, kWrong };
  std::string name;
  Level level = Level::kFine;
  std::string found;
  std::string advice{};
};

// Looks at CPU, LibTorch, BLAS, AMX, CUDA, parts of the build, memory, disk, open files, clock, and what the flags name.
std::vector<Finding> examine(const DoctorFlags& flags);

// The files of a --tls folder by themselves.
std::vector<Finding> examine_tls(const std::string& folder);

}  // namespace epipe::cli
