#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"

namespace epipe {

// The whole file; an error when it is missing, unreadable or longer than `max_bytes`.
Result<Bytes> read_file(const std::string& path, std::uint64_t max_bytes);

// Replaces the file in one step: readers see the old content or the new one, never a part. The parts are written one after
// the other. Devices and pipes are written in place.
Result<void> write_file(const std::string& path, std::initializer_list<ByteView> parts);

// The same for a secret: only its owner can read the file.
Result<void> write_private_file(const std::string& path, std::initializer_list<ByteView> parts);

// Makes the folder and those above it; fine where it exists.
Result<void> make_folders(const std::string& path);
// Removes a file or a folder with all it holds; fine where nothing is. Not std::filesystem::remove_all: LibTorch's wheels export a copy of
// it from another compiler, which crashes.
Result<void> remove_tree(const std::string& path);
Result<void> rename_path(const std::string& from, const std::string& to);
// What was made, renamed and removed in the folder is on the disk when the call returns.
Result<void> sync_folder(const std::string& path);
// Makes the folder and keeps other processes that ask for it out, until this one ends.
Result<void> lock_folder(const std::string& path);
// The names in a folder, in no order; none where there is no such folder.
std::vector<std::string> list_folder(const std::string& path);

}  // namespace epipe
