#pragma once

#include <cstdint>
#include <string>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"

namespace epipe {

// The whole file; an error when it is missing, unreadable or longer than `max_bytes`.
Result<Bytes> read_file(const std::string& path, std::uint64_t max_bytes);

// Replaces the file in one step: readers see the old content or the new one, never a part. The parts are written one after
// the other. Devices and pipes are written in place.
Result<void> write_file(const std::string& path, std::initializer_list<ByteView> parts);

}  // namespace epipe
