#include "epipe/serve/socket_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "epipe/base/file.h"

namespace epipe::serve {
namespace {

constexpr std::string_view kPrefix = "epipe-serve-";

std::string lock_of(const std::string& folder) { return folder + "/lock"; }

// And not a link put there by another user.
bool is_own_folder(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
}

// A folder without a lock is just being made.
void remove_if_abandoned(const std::string& folder) {
  if (!is_own_folder(folder)) return;
  const int lock = ::open(lock_of(folder).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (lock < 0) return;
  if (::flock(lock, LOCK_EX | LOCK_NB) == 0) (void)remove_tree(folder);
  ::close(lock);
}

// The lock appears under its name when it is held.
int hold_lock(const std::string& folder) {
  const std::string unheld = folder + "/unheld";
  const int lock = ::open(unheld.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (lock < 0 || ::flock(lock, LOCK_EX | LOCK_NB) != 0 || !rename_path(unheld, lock_of(folder))) {
    throw std::runtime_error("cannot lock the folder for sockets, " + folder);
  }
  return lock;
}

}  // namespace

SocketFolder::SocketFolder(const std::string& base) : path_(fmt::format("{}/{}XXXXXX", base, kPrefix)) {
  for (const std::string& name : list_folder(base)) {
    if (name.starts_with(kPrefix)) remove_if_abandoned(base + "/" + name);
  }
  if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make a folder for sockets in " + base);
  lock_ = hold_lock(path_);
}

SocketFolder::~SocketFolder() {
  (void)remove_tree(path_);
  ::close(lock_);
}

}  // namespace epipe::serve
