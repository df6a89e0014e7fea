#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace epipe::cli {

struct DoctorFlags {
  std::string listen;        // empty: not checked
  std::string tls;           // likewise
  std::string folder = ".";  // on the disk to check
};

// A finding, and what to do about it.
struct Finding {
  enum class Level : std::uint8_t { kFine, kWarning, kWrong };
  std::string name;
  Level level = Level::kFine;
  std::string found;
  std::string advice{};
};

// Checks CPU, LibTorch, BLAS, AMX, CUDA, parts of the build, memory, disk, open files, clock, and everything named by the flags.
std::vector<Finding> examine(const DoctorFlags& flags);

// Checks only the files of a --tls folder.
std::vector<Finding> examine_tls(const std::string& folder);

}  // namespace epipe::cli
