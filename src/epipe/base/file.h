#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"

namespace epipe {

// The whole file; an error when it is missing, unreadable or longer than `max_bytes`.
Result<Bytes> read_file(const std::string& path, std::uint64_t max_bytes);

// Gives the file's content to `take`, piece by piece: for files that need not be in memory at once.
Result<void> read_pieces(const std::string& path, const std::function<void(ByteView)>& take);

// What these calls write, rename and make is on the disk when they return, its name included: the folder it is in is synced as well.

// Replaces the file in one step: readers see the old content or the new one, never a part. The parts are written one after
// the other. Devices and pipes are written in place.
Result<void> write_file(const std::string& path, std::initializer_list<ByteView> parts);

// The same for a secret: only its owner can read the file, whatever the umask.
Result<void> write_private_file(const std::string& path, std::initializer_list<ByteView> parts);

// The same for content that is made while it is written: gives the pieces to `write`; false where that or anything else failed, with errno.
using FileContent = std::function<bool(const std::function<bool(ByteView piece)>& write)>;
Result<void> write_private_file(const std::string& path, const FileContent& content);

// Makes the folder and those above it; fine where it exists.
Result<void> make_folders(const std::string& path);
// The same, but only their owner can enter the folders that are made. Those that exist are left as they are.
Result<void> make_private_folders(const std::string& path);
// Removes a file or a folder with all it holds; fine where nothing is. Not std::filesystem::remove_all: LibTorch's wheels export a copy of
// it from another compiler, which crashes.
Result<void> remove_tree(const std::string& path);
Result<void> rename_path(const std::string& from, const std::string& to);
// The names in a folder, in no order; an error where it cannot be read.
Result<std::vector<std::string>> read_folder(const std::string& path);
// The same, and none where it cannot be read: not for decisions about what is not there.
std::vector<std::string> list_folder(const std::string& path);
bool is_folder(const std::string& path);
// Bytes of all files in a folder and below it; links are not followed.
std::uint64_t tree_bytes(const std::string& path);

// Keeps others that ask for the same folder out, for as long as it lives.
class FolderLock {
 public:
  // Makes the folder, for its owner only, if there is none.
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
