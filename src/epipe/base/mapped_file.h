#pragma once

#include <memory>
#include <string>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"

namespace epipe {

// A file mapped into memory: pages are read from disk when they are accessed. The file must not shrink while it is mapped.
class MappedFile {
 public:
  // An error if it is missing, unreadable or not a regular file.
  static Result<std::shared_ptr<MappedFile>> open(const std::string& path);  // shared with tensors that lie in it
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  ByteView bytes() const { return bytes_; }
  // Releases the pages read so far; later accesses read them again.
  void forget_pages() const;

 private:
  explicit MappedFile(ByteView bytes) : bytes_(bytes) {}

  ByteView bytes_;
};

}  // namespace epipe
