#include "epipe/experiment/files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>

#include "epipe/base/file.h"

namespace epipe::experiment {
namespace {

constexpr std::uint64_t kMaxTableBytes = 1 << 24;
constexpr const char* kNeeded = "tasks.csv";  // every other table refers to it

// The folder of the running program; empty if the system does not tell.
std::string program_folder() {
  std::array<char, PATH_MAX> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  const std::string program(path.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  return program.substr(0, program.rfind('/'));
}

std::vector<std::string> tables_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const std::string& name : list_folder(folder)) {
    if (name.ends_with(".csv")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::vector<std::string> table_folders() {
  const std::string program = program_folder();
  return {program + "/../share/epipe/experiments", program + "/experiments", EPIPE_EXPERIMENTS};
}

Result<std::vector<File>> read_files(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const auto names = tables_in(folder);
    if (std::find(names.begin(), names.end(), kNeeded) == names.end()) continue;
    std::vector<File> files;
    for (const std::string& name : names) {
      const auto bytes = read_file(fmt::format("{}/{}", folder, name), kMaxTableBytes);
      if (!bytes) return bytes.error();
      files.push_back({name, {reinterpret_cast<const char*>(bytes.value().data()), bytes.value().size()}});
    }
    return files;
  }
  return Error{ErrorCode::kIo,
               fmt::format("the tables of the experiments are missing: no {} in {}; copy the folder experiments/ of epipe's "
                           "sources to one of these places",
                           kNeeded, fmt::join(folders, ", "))};
}

}  // namespace epipe::experiment
