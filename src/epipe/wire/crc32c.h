#pragma once

#include <cstdint>

#include "epipe/base/bytes.h"
#include "epipe/base/thread_pool.h"

namespace epipe::wire {

// CRC-32C (Castagnoli, as in iSCSI: reflected polynomial 0x82f63b78, start and final xor 0xffffffff).
// `before` is the checksum of the preceding bytes: crc32c(b, crc32c(a)) == crc32c(ab).
std::uint32_t crc32c(ByteView bytes, std::uint32_t before = 0);

// The checksum of ab from the checksums a and b.
std::uint32_t crc32c_combine(std::uint32_t a, std::uint32_t b, std::uint64_t bytes_of_b);

// The same number as crc32c(bytes, before), computed by all threads of the pool (null: one thread).
std::uint32_t crc32c_parallel(ByteView bytes, std::uint32_t before, ThreadPool* pool);

// The plain table-driven version, which all others must match.
std::uint32_t crc32c_reference(ByteView bytes, std::uint32_t before = 0);

}  // namespace epipe::wire
