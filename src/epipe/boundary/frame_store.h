#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "epipe/base/bytes.h"

namespace epipe::boundary {

// One sample's activations: which sample, and the tag that its sender gave to what they were computed from. Another tag is another tensor.
struct SampleKey {
  std::uint64_t sample = 0;  // sample_number()
  std::uint64_t tag = 0;

  bool operator==(const SampleKey&) const = default;
};

// Training and validation sets count their samples from 0 each.
inline std::uint64_t sample_number(std::int64_t id, bool validation) {
  return (static_cast<std::uint64_t>(id) << 1U) | static_cast<std::uint64_t>(validation);
}

// Frames by sample, in one file that grows up to a quota and is its owner's alone:
//
//   record   magic u32 | crc32c u32 of what follows up to the frame | sample u64 | tag u64 | bytes u64 | frame
//
// A file that ends in the middle of a record, or has a damaged one, is cut off there; of two records of a sample the later one counts. What
// a frame holds is for its reader to check: it has a checksum. For one thread at a time.
class FrameStore {
 public:
  static constexpr std::size_t kMaxSamples = std::size_t{1} << 22U;  // the index is in memory

  // Keeps nothing where `max_bytes` is 0. Throws std::runtime_error where the file cannot be opened.
  FrameStore(const std::string& path, std::uint64_t max_bytes);
  ~FrameStore();
  FrameStore(const FrameStore&) = delete;
  FrameStore& operator=(const FrameStore&) = delete;

  // False where there is no room, or the disk takes no more.
  bool keep(const SampleKey& key, ByteView frame);
  // Nothing where it is not here, or cannot be read.
  std::optional<Bytes> find(const SampleKey& key) const;
  // It turned out to be damaged.
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
  std::uint64_t end_ = 0;  // of the records
  std::unordered_map<std::uint64_t, Place> index_;
};

}  // namespace epipe::boundary
