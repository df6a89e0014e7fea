#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "epipe/base/bytes.h"

namespace epipe::boundary {

// Identifies one sample's activations: the sample, and the sender's tag for what they were computed from. A new tag means a new tensor.
struct SampleKey {
  std::uint64_t sample = 0;  // sample_number()
  std::uint64_t tag = 0;

  bool operator==(const SampleKey&) const = default;
};

// Training and validation samples are each numbered from 0.
inline std::uint64_t sample_number(std::int64_t id, bool validation) {
  return (static_cast<std::uint64_t>(id) << 1U) | static_cast<std::uint64_t>(validation);
}

// Frames by sample, in one file that only its owner can read and that grows up to a quota:
//
//   record   magic u32 | crc32c u32 of the next three fields | sample u64 | tag u64 | bytes u64 | frame
//
// A file with an incomplete or damaged record is truncated there; of two records of a sample the later one counts. The reader of a frame
// checks its content: it has its own checksum. One thread at a time.
class FrameStore {
 public:
  static constexpr std::size_t kMaxSamples = std::size_t{1} << 22U;  // the index is in memory

  // Keeps nothing if `max_bytes` is 0. Throws std::runtime_error if the file cannot be opened.
  FrameStore(const std::string& path, std::uint64_t max_bytes);
  ~FrameStore();
  FrameStore(const FrameStore&) = delete;
  FrameStore& operator=(const FrameStore&) = delete;

  // False if the quota is reached or the disk is full.
  bool keep(const SampleKey& key, ByteView frame);
  // Nullopt if it is not here or cannot be read.
  std::optional<Bytes> find(const SampleKey& key) const;
  // Call when its frame turned out to be damaged.
  void forget(std::uint64_t sample) { index_.erase(sample); }
  std::vector<SampleKey> held() const;

 private:
  struct Place {
    std::uint64_t tag;
    std::uint64_t begin;  // of the frame in the file
    std::uint64_t bytes;
  };
  void read_index(std::uint64_t file_bytes);

  int fd_ = -1;
  std::uint64_t max_bytes_;
  std::uint64_t end_ = 0;  // offset after the last record
  std::unordered_map<std::uint64_t, Place> index_;
};

}  // namespace epipe::boundary
