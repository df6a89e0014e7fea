#include "epipe/model/safetensors_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "epipe/base/file.h"

namespace epipe::model {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;

// Only its owner can read it. It has no name when the call returns, so a process that is killed later leaves nothing behind.
std::FILE* open_unnamed(const std::string& beside) {
  const std::string path = fmt::format("{}.data{}", beside, ::getpid());
  ::unlink(path.c_str());  // left by a process that was killed between these lines
  const int fd = ::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) return nullptr;
  ::unlink(path.c_str());
  std::FILE* const file = ::fdopen(fd, "w+b");
  if (file == nullptr) ::close(fd);
  return file;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::string path)
    : path_(std::move(path)), data_(open_unnamed(path_)), error_(data_ == nullptr ? errno : 0) {}

SafetensorsWriter::~SafetensorsWriter() {
  if (data_ != nullptr) std::fclose(data_);
}

Error SafetensorsWriter::io_error() const { return {ErrorCode::kIo, fmt::format("cannot write {}: {}", path_, std::strerror(errno))}; }

Result<void> SafetensorsWriter::add(const NamedTensors& tensors) {
  if (data_ == nullptr) return Error{ErrorCode::kIo, fmt::format("cannot write {}: {}", path_, std::strerror(error_))};
  for (const auto& [name, x] : tensors) {
    if (!names_.insert(name).second) return Error{ErrorCode::kBadFile, fmt::format("tensor {} comes twice", in_quotes(name))};
    const auto dense = dense_for_file(name, x);
    if (!dense) return dense.error();
    const ByteView bytes = dense_bytes(dense.value());
    if (!bytes.empty() && std::fwrite(bytes.data(), 1, bytes.size(), data_) != bytes.size()) return io_error();
    waiting_.push_back({name, x.scalar_type(), x.sizes().vec(), std::exchange(end_, end_ + bytes.size()), bytes.size()});
  }
  return {};
}

SafeTensorsHeader SafetensorsWriter::header(const Metadata& metadata) const {
  SafeTensorsHeader header{{}, metadata};
  std::uint64_t end = 0;
  for (const Waiting& tensor : waiting_) {
    const std::uint64_t begin = std::exchange(end, end + tensor.bytes);
    header.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, begin, end});
  }
  return header;
}

bool SafetensorsWriter::copy(const Waiting& tensor, const std::function<bool(ByteView)>& write) const {
  if (std::fseek(data_, static_cast<long>(tensor.begin), SEEK_SET) != 0) return false;
  std::vector<std::byte> piece(std::min<std::uint64_t>(kPiece, tensor.bytes));
  for (std::uint64_t left = tensor.bytes; left > 0;) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(left, piece.size()));
    if (std::fread(piece.data(), 1, count, data_) != count || !write(ByteView(piece).first(count))) return false;
    left -= count;
  }
  return true;
}

Result<void> SafetensorsWriter::finish(const Metadata& metadata) {
  if (data_ == nullptr || std::fflush(data_) != 0) return io_error();
  std::sort(waiting_.begin(), waiting_.end(), [](const Waiting& a, const Waiting& b) {
    return std::pair(dtype_order(a.dtype), a.name) < std::pair(dtype_order(b.dtype), b.name);
  });
  const auto json = format_safetensors_header(header(metadata));
  if (!json) return json.error();
  Bytes front;
  append(front, static_cast<std::uint64_t>(json.value().size()));
  append_bytes(front, std::as_bytes(std::span(json.value())));
  return write_private_file(path_, [&](const auto& write) {
    return write(front) && std::all_of(waiting_.begin(), waiting_.end(), [&](const Waiting& tensor) { return copy(tensor, write); });
  });
}

}  // namespace epipe::model
