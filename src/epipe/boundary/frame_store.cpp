#include "epipe/boundary/frame_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "epipe/wire/crc32c.h"

namespace epipe::boundary {
namespace {

constexpr std::uint32_t kMagic = 0x41525045;  // "EPRA"
constexpr std::size_t kRecordBytes = 32;
constexpr std::size_t kCheckedFrom = 8;

bool read_at(int fd, std::uint64_t offset, MutableBytes out) {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

bool write_at(int fd, std::uint64_t offset, ByteView in) {
  while (!in.empty()) {
    const ssize_t put = ::pwrite(fd, in.data(), in.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    offset += static_cast<std::uint64_t>(put);
    in = in.subspan(static_cast<std::size_t>(put));
  }
  return true;
}

Bytes record_of(const SampleKey& key, std::uint64_t bytes) {
  Bytes record;
  append(record, kMagic);
  append(record, std::uint32_t{0});
  append(record, key.sample);
  append(record, key.tag);
  append(record, bytes);
  store(record, 4, wire::crc32c(ByteView(record).subspan(kCheckedFrom)));
  return record;
}

}  // namespace

FrameStore::FrameStore(const std::string& path, std::uint64_t max_bytes) : max_bytes_(max_bytes) {
  if (max_bytes_ == 0) return;
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  struct stat status {};
  if (fd_ < 0 || ::fstat(fd_, &status) != 0) {
    const int why = errno;
    if (fd_ >= 0) ::close(fd_);
    throw std::runtime_error(fmt::format("cannot open the file of reused activations: {}", std::strerror(why)));
  }
  read_index(static_cast<std::uint64_t>(status.st_size));
  if (::ftruncate(fd_, static_cast<off_t>(end_)) != 0) {
    ::close(fd_);
    throw std::runtime_error(fmt::format("cannot cut off the file of reused activations: {}", std::strerror(errno)));
  }
}

FrameStore::~FrameStore() {
  if (fd_ >= 0) ::close(fd_);
}

void FrameStore::read_index(std::uint64_t file_bytes) {
  Bytes record(kRecordBytes);
  while (end_ + kRecordBytes <= file_bytes && index_.size() < kMaxSamples && read_at(fd_, end_, record)) {
    const auto bytes = load<std::uint64_t>(record, 24);
    const bool whole = load<std::uint32_t>(record, 0) == kMagic &&
                       load<std::uint32_t>(record, 4) == wire::crc32c(ByteView(record).subspan(kCheckedFrom)) &&
                       bytes <= file_bytes - end_ - kRecordBytes;
    if (!whole) break;
    index_[load<std::uint64_t>(record, 8)] = {load<std::uint64_t>(record, 16), end_ + kRecordBytes, bytes};
    end_ += kRecordBytes + bytes;
  }
}

bool FrameStore::keep(const SampleKey& key, ByteView frame) {
  const std::uint64_t bytes = kRecordBytes + frame.size();
  const bool fits = fd_ >= 0 && bytes <= max_bytes_ && end_ <= max_bytes_ - bytes;
  if (!fits || (index_.size() >= kMaxSamples && !index_.contains(key.sample))) return false;
  // The record's header is written last: if anything fails, the file still ends before it.
  if (!write_at(fd_, end_ + kRecordBytes, frame) || !write_at(fd_, end_, record_of(key, frame.size()))) return false;
  index_[key.sample] = {key.tag, end_ + kRecordBytes, frame.size()};
  end_ += bytes;
  return true;
}

std::optional<Bytes> FrameStore::find(const SampleKey& key) const {
  const auto found = index_.find(key.sample);
  if (found == index_.end() || found->second.tag != key.tag) return std::nullopt;
  Bytes frame;
  Unwritten room(frame, static_cast<std::size_t>(found->second.bytes));
  if (!read_at(fd_, found->second.begin, room.span())) return std::nullopt;
  room.written();
  return frame;
}

std::vector<SampleKey> FrameStore::held() const {
  std::vector<SampleKey> all;
  all.reserve(index_.size());
  for (const auto& [sample, place] : index_) all.push_back({sample, place.tag});
  return all;
}

}  // namespace epipe::boundary
