#include "epipe/serve/state_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <span>
#include <stdexcept>
#include <thread>

#include "epipe/base/secret.h"
#include "epipe/serve/log.h"
#include "epipe/session/checkpoint.h"
#include "epipe/transport/refused.h"

namespace epipe::serve {
namespace {

using transport::Refusal;
using transport::Refused;

constexpr double kCleaningSeconds = 60;
constexpr double kLockSeconds = 2;  // children of a server that was killed are gone by then
constexpr double kDay = 24 * 3600;
constexpr std::size_t kNameDigits = 32;
constexpr std::size_t kTicketDigits = 64;
constexpr std::string_view kNew = "new-";
constexpr std::string_view kRemoved = "removed-";

double gigabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e9; }

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// Whether anything exists there, folder or not.
bool exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 || errno != ENOENT;
}

std::time_t changed_at(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 ? status.st_mtime : 0;
}

// A server started right after another was killed waits for that one's children.
FolderLock locked(const std::string& folder) {
  for (const Stopwatch watch;; std::this_thread::sleep_for(std::chrono::milliseconds(50))) {
    auto lock = FolderLock::take(folder);
    if (lock) return std::move(lock).value();
    if (watch.seconds() > kLockSeconds) throw std::runtime_error("--state-dir: " + lock.error().message);
  }
}

std::uint64_t half_of_the_disk(const std::string& folder) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) {
    throw std::runtime_error(fmt::format("cannot ask for the disk of {}: {}", folder, std::strerror(errno)));
  }
  return std::max<std::uint64_t>(1, (std::uint64_t{disk.f_bavail} * disk.f_frsize + tree_bytes(folder)) / 2);
}

// Why the ticket cannot be checked, or empty.
std::string damage_of(const Result<Bytes>& ticket) {
  if (!ticket) return ticket.error().message;
  const auto& bytes = ticket.value();
  if (is_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, kTicketDigits)) return {};
  return fmt::format("expected {} hex digits, got {} bytes", kTicketDigits, bytes.size());
}

}  // namespace

bool is_session_name(std::string_view text) { return is_hex(text, kNameDigits); }
bool is_ticket(std::string_view text) { return is_hex(text, kTicketDigits); }

// A session without a process.
struct StateStore::Ended {
  std::string name;
  std::uint64_t bytes = 0;
  std::time_t used = 0;  // when it ended, or saved its last checkpoint
};

StateStore::StateStore(std::string folder, const StateLimits& limits, int max_sessions)
    : folder_(std::move(folder)),
      lock_(locked(folder_)),
      max_bytes_(limits.bytes ? *limits.bytes : half_of_the_disk(folder_)),
      max_seconds_(limits.days * kDay),
      session_bytes_(max_bytes_ == 0 ? 0 : std::max<std::uint64_t>(1, max_bytes_ / static_cast<std::uint64_t>(max_sessions))) {
  for (const std::string& name : list_folder(folder_)) {
    if (is_session_name(name) && is_folder(path_of(name))) ::chmod(path_of(name).c_str(), 0700);  // made by earlier versions of epipe
    if (name.starts_with(kNew)) (void)remove_tree(path_of(name));                                 // left by a crash
  }
  if (max_bytes_ > 0) {
    log("sessions may keep {:.3g} GB in {}, {:.3g} GB each (--state-quota)", gigabytes(max_bytes_), folder_, gigabytes(session_bytes_));
  }
  clean();
}

bool StateStore::holds(const std::string& name) const { return is_session_name(name) && exists(path_of(name)); }

StateStore::Claim StateStore::claim(const std::string& name, const std::string& ticket) {
  if (!is_session_name(name) || !is_ticket(ticket)) throw Refused(Refusal::kNotFound, "a session is named by hex digits");
  const std::lock_guard lock(mutex_);
  if (!exists(path_of(name))) make(name, ticket);
  const auto file = read_file(path_of(name) + "/ticket", kTicketDigits);
  if (const std::string damage = damage_of(file); !damage.empty()) {
    if (reported_.insert(name).second) {
      log("session {:.8} is refused to everybody, its ticket cannot be checked: {}; remove {} and its client can begin anew", name, damage,
          path_of(name));
    }
    throw Refused(Refusal::kUnauthenticated, "not your session");
  }
  const auto& bytes = file.value();
  if (!equal_secret({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, ticket)) {
    throw Refused(Refusal::kUnauthenticated, "not your session");
  }
  ++claimed_[name];
  return {new std::string(path_of(name)), [this, name](const std::string* path) {
            delete path;
            release(name);
          }};
}

// The folder gets its name only when the ticket is in it.
void StateStore::make(const std::string& name, const std::string& ticket) const {
  const std::string unfinished = fmt::format("{}/{}{}", folder_, kNew, name);
  Result<void> made = remove_tree(unfinished);
  if (made) made = make_private_folders(unfinished);
  if (made) made = write_private_file(unfinished + "/ticket", {std::as_bytes(std::span(ticket))});
  if (made) made = rename_path(unfinished, path_of(name));
  if (made) return;
  (void)remove_tree(unfinished);
  log("cannot begin session {:.8}: {}", name, made.error().message);
  throw Refused(Refusal::kOther, "the server cannot write to its disk; its operator finds the reason in the log");
}

void StateStore::release(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto claimed = claimed_.find(name);
  if (--claimed->second > 0) return;
  claimed_.erase(claimed);
  (void)::utimensat(AT_FDCWD, path_of(name).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);  // used until now
  ended_ = true;
}

// Removing may take long; nobody waits for it.
void StateStore::clean() {
  {
    const std::lock_guard lock(mutex_);
    if (!ended_ && since_cleaning_.seconds() < kCleaningSeconds) return;
    ended_ = false;
    since_cleaning_ = {};
    retire_sessions();
  }
  remove_retired();
}

void StateStore::retire_sessions() {
  std::uint64_t bytes = 0;
  std::vector<Ended> ended;
  for (const std::string& name : list_folder(folder_)) {
    const std::string path = path_of(name);
    if (!is_session_name(name) || !is_folder(path)) continue;
    const std::string checkpoints = path + "/checkpoints";
    const bool running = claimed_.contains(name);
    if (!running && session::Checkpoints(checkpoints).none()) {
      retire(name);
      continue;
    }
    const std::uint64_t held = tree_bytes(path);
    bytes += held;
    if (!running) ended.push_back({name, held, std::max(changed_at(path), changed_at(checkpoints))});
  }
  std::sort(ended.begin(), ended.end(), [](const Ended& a, const Ended& b) { return a.used < b.used; });
  for (const Ended& session : ended) {
    const double age = std::difftime(std::time(nullptr), session.used);
    const bool old = max_seconds_ > 0 && age > max_seconds_;
    const bool crowded = max_bytes_ > 0 && bytes > max_bytes_;
    if ((!old && !crowded) || !retire(session.name)) continue;
    bytes -= session.bytes;
    log("removed session {:.8}: {:.3f} GB, not used for {:.1f} days, {}", session.name, gigabytes(session.bytes), age / kDay,
        old ? "longer than --state-age allows" : fmt::format("to stay within the {:.3f} GB of --state-quota", gigabytes(max_bytes_)));
  }
}

// A partly removed folder must not look like a session.
bool StateStore::retire(const std::string& name) const {
  const auto renamed = rename_path(path_of(name), fmt::format("{}/{}{}", folder_, kRemoved, name));
  if (!renamed) log("cannot remove session {:.8}: {}", name, renamed.error().message);
  return renamed.ok();
}

void StateStore::remove_retired() const {
  for (const std::string& name : list_folder(folder_)) {
    if (!name.starts_with(kRemoved)) continue;
    if (const auto removed = remove_tree(path_of(name)); !removed) log("{}", removed.error().message);
  }
}

}  // namespace epipe::serve
