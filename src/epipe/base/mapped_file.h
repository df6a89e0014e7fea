#pragma once

#include <memory>
#include <string>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"

namespace epipe {

// A file's bytes as memory that is read from the disk when it is looked at. The file must not become shorter meanwhile.
class MappedFile {
 public:
  // An error where it is missing, unreadable or no ordinary file.
  static Result<std::shared_ptr<MappedFile>> open(const std::string& path);  // shared with tensors that lie in it
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  ByteView bytes() const { return bytes_; }
  // What was looked at so far needs no memory any more; it is read again where it is looked at again.
  void forget_pages() const;

 private:
  explicit MappedFile(ByteView bytes) : bytes_(bytes) {}

  ByteView bytes_;
};

}  // namespace epipe
