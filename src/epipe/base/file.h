#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"

namespace epipe {

// Returns the whole file; an error if it is missing, unreadable or longer than `max_bytes`.
Result<Bytes> read_file(const std::string& path, std::uint64_t max_bytes);

// Passes the file's content to `take`, piece by piece, so that it need not fit into memory.
Result<void> read_pieces(const std::string& path, const std::function<void(ByteView)>& take);

// What these calls write, rename and create is on disk when they return, directory entry included: the parent folder is synced as well.

// Replaces the file in one step: readers see the old content or the new one, never a part. The parts are written one after
// the other. Devices and pipes are written in place.
Result<void> write_file(const std::string& path, std::initializer_list<ByteView> parts);

// The same for a secret: only its owner can read the file, whatever the umask.
Result<void> write_private_file(const std::string& path, std::initializer_list<ByteView> parts);

// The same for content that is produced while it is written: passes the pieces to `write`; returns false, with errno set, on failure.
using FileContent = std::function<bool(const std::function<bool(ByteView piece)>& write)>;
Result<void> write_private_file(const std::string& path, const FileContent& content);

// Creates the folder and its parents; not an error if it exists.
Result<void> make_folders(const std::string& path);
// The same, but only the owner can enter the folders it creates. Existing folders are left as they are.
Result<void> make_private_folders(const std::string& path);
// Removes a file, or a folder with everything in it; not an error if it does not exist. Not std::filesystem::remove_all: LibTorch's wheels
// export a copy of it from another compiler, which crashes.
Result<void> remove_tree(const std::string& path);
Result<void> rename_path(const std::string& from, const std::string& to);
// The names in a folder, in no order; an error if it cannot be read.
Result<std::vector<std::string>> read_folder(const std::string& path);
// The same, but empty if it cannot be read: do not use it to decide that something is absent.
std::vector<std::string> list_folder(const std::string& path);
bool is_folder(const std::string& path);
// Total size of all files in a folder and its subfolders; links are not followed.
std::uint64_t tree_bytes(const std::string& path);

// An exclusive lock on a folder, held for as long as it lives.
class FolderLock {
 public:
  // Creates the folder, for its owner only, if it does not exist.
  static Result<FolderLock> take(const std::string& path);
  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  explicit FolderLock(int fd) : fd_(fd) {}

  int fd_;
};

}  // namespace epipe
