#pragma once

#include <map>
#include <string>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"

namespace epipe::model {

// The members of a ZIP archive that stores them as they are, which is how torch.save writes: views into the archive's bytes. Members
// that are compressed, encrypted, outside the archive, or share bytes are errors, so nothing in it is larger than the archive.
class ZipArchive {
 public:
  // `bytes` outlive the archive.
  static Result<ZipArchive> parse(ByteView bytes);

  // The bytes of a member, its checksum verified.
  Result<ByteView> read(const std::string& name) const;
  bool contains(const std::string& name) const { return members_.contains(name); }
  // The folder that holds the member `file`, with its slash; an error where none or several do.
  Result<std::string> folder_of(const std::string& file) const;

 private:
  struct Member {
    ByteView data;
    std::uint32_t crc = 0;
  };
  std::map<std::string, Member> members_;
};

}  // namespace epipe::model
