#pragma once

#include <map>
#include <string>

#include "epipe/base/build_part.h"
#include "epipe/base/bytes.h"
#include "epipe/base/result.h"

// .tar.gz archives, in memory. Paths in an archive never decide where anything is written.
namespace epipe::data {

// The content of a gzip file; an error if it is longer than `max_bytes`.
Result<Bytes> gunzip(ByteView bytes, std::size_t max_bytes);
Part zlib_part();

// The regular files of a tar archive by the last part of their names; links, folders and the like are left out. Views into `bytes`.
Result<std::map<std::string, ByteView>> parse_tar(ByteView bytes);

}  // namespace epipe::data
