#include "epipe/base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace epipe {

Result<std::shared_ptr<MappedFile>> MappedFile::open(const std::string& path) {
  const auto failed = [&](const char* what) {
    return Error{ErrorCode::kIo, fmt::format("cannot {} {}: {}", what, path, std::strerror(errno))};
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed("open");
  struct stat status {};
  const bool known = ::fstat(fd, &status) == 0;
  void* at = nullptr;
  const auto size = static_cast<std::size_t>(status.st_size);
  if (known && S_ISREG(status.st_mode) && size > 0) at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  ::close(fd);
  errno = error;
  if (!known || at == MAP_FAILED) return failed("read");
  if (!S_ISREG(status.st_mode)) return Error{ErrorCode::kIo, fmt::format("cannot read {}: it is not a regular file", path)};
  return std::shared_ptr<MappedFile>(new MappedFile({static_cast<const std::byte*>(at), at == nullptr ? 0 : size}));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::forget_pages() const {
  if (!bytes_.empty()) ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
}

}  // namespace epipe
