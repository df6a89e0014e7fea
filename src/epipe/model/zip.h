#pragma once

#include <map>
#include <string>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"

namespace epipe::model {

// The members of a ZIP archive that stores them uncompressed, like torch.save: views into the archive's bytes. Members that are compressed,
// encrypted, outside the archive, or share bytes are errors, so no member is larger than the archive.
class ZipArchive {
 public:
  // `bytes` outlive the archive.
  static Result<ZipArchive> parse(ByteView bytes);

  // The bytes of a member, its checksum verified.
  Result<ByteView> read(const std::string& name) const;
  bool contains(const std::string& name) const { return members_.contains(name); }
  // The folder that contains the member `file`, with a trailing slash; an error if there is none or several.
  Result<std::string> folder_of(const std::string& file) const;

 private:
  struct Member {
    ByteView data;
    std::uint32_t crc = 0;
  };
  std::map<std::string, Member> members_;
};

}  // namespace epipe::model
