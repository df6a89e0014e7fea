#include "epipe/cli/run_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "epipe/cli/command.h"

namespace epipe::cli {
namespace {

bool is_there(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

bool has_content(const std::string& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 && status.st_size > 0;
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// "runs/new" for "runs/new/a" if only runs exists.
std::string first_missing(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string folder = path.substr(0, end);
    if (!is_there(folder)) return folder;
    if (end == std::string::npos) return "";
  }
}

}  // namespace

RunFolder::RunFolder(std::string path) : path_(without_slashes(std::move(path))), first_made_(first_missing(path_)) {
  auto lock = FolderLock::take(path_);
  if (!lock) {
    remove_empty();
    throw Failure(lock.error().message);
  }
  lock_.emplace(std::move(lock).value());
}

RunFolder::~RunFolder() {
  if (first_made_.empty() || holds_work()) return;
  for (const char* const own : {"session.json", "config.toml", "metrics.jsonl"}) ::unlink((path_ + "/" + own).c_str());
  remove_empty();
}

// From the innermost folder outwards; rmdir() refuses folders that are not empty.
void RunFolder::remove_empty() const {
  if (first_made_.empty()) return;
  for (std::string folder = path_; ::rmdir(folder.c_str()), folder.size() > first_made_.size();) folder.resize(folder.rfind('/'));
}

bool RunFolder::holds_work() const {
  return has_content(path_ + "/metrics.jsonl") || is_there(path_ + "/model.safetensors") || is_there(path_ + "/checkpoints");
}

}  // namespace epipe::cli
