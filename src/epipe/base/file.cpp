#include "epipe/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ftw.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace epipe {
namespace {

// A file descriptor that closes itself.
class Handle {
 public:
  explicit Handle(int fd) : fd_(fd) {}
  ~Handle() { close_now(); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  bool close_now() {
    const bool ok = fd_ < 0 || ::close(fd_) == 0;
    fd_ = -1;
    return ok;
  }

 private:
  int fd_;
};

Error io_error(std::string_view what, const std::string& path) {
  return {ErrorCode::kIo, fmt::format("cannot {} {}: {}", what, path, std::strerror(errno))};
}

bool write_all(int fd, ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A new name in the folder is on disk when the call returns. Some file systems cannot sync a folder and return EINVAL.
Result<void> sync_folder(const std::string& path) {
  const Handle folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.open() || (::fsync(folder.fd()) != 0 && errno != EINVAL)) return io_error("sync the folder", path);
  return {};
}

}  // namespace

Result<Bytes> read_file(const std::string& path, std::uint64_t max_bytes) {
  const Handle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) return io_error("open", path);
  struct stat status {};
  if (::fstat(file.fd(), &status) != 0) return io_error("read", path);
  if (S_ISDIR(status.st_mode)) return Error{ErrorCode::kIo, fmt::format("cannot read {}: it is a directory", path)};
  const Error too_long{ErrorCode::kTooLarge, fmt::format("{} is longer than {} bytes", path, max_bytes)};
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > max_bytes) return too_long;
  Bytes content;
  content.reserve(static_cast<std::size_t>(size));
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  while (true) {
    Unwritten room(content, kChunk);
    const ssize_t got = ::read(file.fd(), room.span().data(), kChunk);
    if (got < 0 && errno != EINTR) return io_error("read", path);
    room.written(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return content;
    if (content.size() > max_bytes) return too_long;  // it grew, or is no plain file
  }
}

Result<void> read_pieces(const std::string& path, const std::function<void(ByteView)>& take) {
  const Handle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) return io_error("open", path);
  std::vector<std::byte> buffer(std::size_t{1} << 20);
  while (true) {
    const ssize_t got = ::read(file.fd(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error("read", path);
    if (got == 0) return {};
    take(ByteView(buffer).first(static_cast<std::size_t>(got)));
  }
}

namespace {

FileContent one_after_the_other(std::initializer_list<ByteView> parts) {
  return [parts](const auto& write) { return std::all_of(parts.begin(), parts.end(), write); };
}

Result<void> write_with_mode(const std::string& path, const FileContent& content, mode_t mode) {
  struct stat status {};
  const bool in_place = ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
  const std::string target = in_place ? path : fmt::format("{}.tmp{}", path, ::getpid());
  if (!in_place) ::unlink(target.c_str());  // left by a process that was killed; its mode may differ
  Handle file(::open(target.c_str(), O_WRONLY | O_CLOEXEC | (in_place ? O_TRUNC : O_CREAT | O_EXCL), mode));
  if (!file.open()) return io_error("create", target);
  bool ok = content([&file](ByteView part) { return write_all(file.fd(), part); });
  ok = ok && (in_place || ::fsync(file.fd()) == 0);
  ok = file.close_now() && ok;
  ok = ok && (in_place || ::rename(target.c_str(), path.c_str()) == 0);
  if (ok) return in_place ? Result<void>() : sync_folder(parent_of(path));
  const Error error = io_error("write", path);
  if (!in_place) ::unlink(target.c_str());
  return error;
}

}  // namespace

Result<void> write_file(const std::string& path, std::initializer_list<ByteView> parts) {
  return write_with_mode(path, one_after_the_other(parts), 0666);
}
Result<void> write_private_file(const std::string& path, std::initializer_list<ByteView> parts) {
  return write_with_mode(path, one_after_the_other(parts), 0600);
}
Result<void> write_private_file(const std::string& path, const FileContent& content) { return write_with_mode(path, content, 0600); }

namespace {

Result<void> make_folders_with_mode(const std::string& path, mode_t mode) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string folder = path.substr(0, end);
    const auto there = [&folder] {
      struct stat status {};
      return ::stat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
    };
    if (!there()) {
      const bool made = ::mkdir(folder.c_str(), mode) == 0 || (errno == EEXIST && there());  // another process was faster
      if (!made) return io_error("make the folder", folder);
      EPIPE_TRY(sync_folder(parent_of(folder)));
    }
    if (end == std::string::npos) return {};
  }
}

}  // namespace

Result<void> make_folders(const std::string& path) { return make_folders_with_mode(path, 0777); }
Result<void> make_private_folders(const std::string& path) { return make_folders_with_mode(path, 0700); }

Result<void> remove_tree(const std::string& path) {
  constexpr int kTries = 10;  // another process may be removing the same
  struct stat status {};
  const auto remove_one = [](const char* file, const struct stat*, int, struct FTW*) {
    return std::remove(file) == 0 || errno == ENOENT ? 0 : -1;
  };
  for (int tries = 0; ::lstat(path.c_str(), &status) == 0; ++tries) {
    const bool gone = ::nftw(path.c_str(), remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT;
    if (!gone || tries == kTries) return io_error("remove", path);
  }
  return {};
}

Result<void> rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return io_error("rename", from);
  EPIPE_TRY(sync_folder(parent_of(to)));
  return parent_of(from) == parent_of(to) ? Result<void>() : sync_folder(parent_of(from));
}

Result<std::vector<std::string>> read_folder(const std::string& path) {
  DIR* const folder = ::opendir(path.c_str());
  if (folder == nullptr) return io_error("open the folder", path);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* const entry = ::readdir(folder)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  const bool complete = errno == 0;
  const Error error = io_error("read the folder", path);
  ::closedir(folder);
  if (!complete) return error;
  return names;
}

std::vector<std::string> list_folder(const std::string& path) {
  auto names = read_folder(path);
  return names ? std::move(names).value() : std::vector<std::string>();
}

std::uint64_t tree_bytes(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return 0;
  if (!S_ISDIR(status.st_mode)) return static_cast<std::uint64_t>(status.st_size);
  std::uint64_t bytes = 0;
  for (const std::string& name : list_folder(path)) bytes += tree_bytes(path + "/" + name);
  return bytes;
}

Result<FolderLock> FolderLock::take(const std::string& path) {
  EPIPE_TRY(make_private_folders(path));
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return io_error("open", path);
  if (::flock(folder, LOCK_EX | LOCK_NB) == 0) return FolderLock(folder);
  const bool taken = errno == EWOULDBLOCK;
  const Error error =
      taken ? Error{ErrorCode::kIo, fmt::format("another process is at work in {}; wait for it, or take another folder", path)}
            : io_error("lock", path);
  ::close(folder);
  return error;
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace epipe
