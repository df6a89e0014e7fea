#include "epipe/model/zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "epipe/model/named_tensors.h"

namespace epipe::model {
namespace {

constexpr std::uint32_t kLocalHeader = 0x04034b50;
constexpr std::uint32_t kCentralHeader = 0x02014b50;
constexpr std::uint32_t kEnd = 0x06054b50;
constexpr std::uint32_t kEnd64 = 0x06064b50;
constexpr std::uint32_t kEnd64Locator = 0x07064b50;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kLocatorBytes = 20;
constexpr std::size_t kLocalBytes = 30;
constexpr std::size_t kMaxComment = 0xffff;
constexpr std::uint16_t kEncrypted = 1;
constexpr std::uint16_t kZip64Field = 1;

constexpr auto kCrcTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) != 0 ? 0xedb88320U : 0U);
    table[i] = c;
  }
  return table;
}();

std::uint32_t crc32(ByteView bytes) {
  std::uint32_t c = 0xffffffff;
  for (const std::byte b : bytes) c = kCrcTable[(c ^ static_cast<std::uint8_t>(b)) & 0xff] ^ (c >> 8);
  return ~c;
}

template <typename T>
std::optional<T> at(ByteView bytes, std::uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  return ByteReader(bytes.subspan(offset)).take<T>();
}

struct Directory {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t members = 0;
};

// Finds the record at the end of the archive; searches backwards because a comment may follow it.
std::optional<std::uint64_t> find_end(ByteView bytes) {
  if (bytes.size() < kEndBytes) return std::nullopt;
  const std::uint64_t last = bytes.size() - kEndBytes;
  const std::uint64_t first = last > kMaxComment ? last - kMaxComment : 0;
  for (std::uint64_t offset = last + 1; offset-- > first;) {
    if (at<std::uint32_t>(bytes, offset) == kEnd) return offset;
  }
  return std::nullopt;
}

Result<Directory> find_directory(ByteView bytes) {
  const auto end = find_end(bytes);
  if (!end) return bad_file("expected a ZIP archive as torch.save writes, but its end is missing");
  Directory d{*at<std::uint32_t>(bytes, *end + 16), *at<std::uint32_t>(bytes, *end + 12), *at<std::uint16_t>(bytes, *end + 10)};
  if (*end >= kLocatorBytes && at<std::uint32_t>(bytes, *end - kLocatorBytes) == kEnd64Locator) {
    const auto record = *at<std::uint64_t>(bytes, *end - kLocatorBytes + 8);
    const auto members = at<std::uint64_t>(bytes, record + 32);
    const auto size = at<std::uint64_t>(bytes, record + 40);
    const auto offset = at<std::uint64_t>(bytes, record + 48);
    if (record > bytes.size() || at<std::uint32_t>(bytes, record) != kEnd64 || !offset)
      return bad_file("the ZIP64 record is outside the archive");
    d = {*offset, *size, *members};
  }
  if (d.offset > bytes.size() || d.bytes > bytes.size() - d.offset) return bad_file("the directory of the archive is outside of it");
  return d;
}

struct Header {
  std::string name;
  std::uint32_t crc = 0;
  std::uint64_t size = 0;
  std::uint64_t offset = 0;
};

// Replaces values that did not fit into 32 bits by the 64-bit values of the extra field, which have a fixed order.
bool apply_zip64(ByteView extra, std::uint64_t& size, std::uint64_t& stored, std::uint64_t& offset) {
  ByteReader reader(extra);
  while (true) {
    const auto id = reader.take<std::uint16_t>();
    const auto length = reader.take<std::uint16_t>();
    const auto field = length ? reader.take_bytes(*length) : std::nullopt;
    if (!field) return size != 0xffffffff && stored != 0xffffffff && offset != 0xffffffff;
    if (*id != kZip64Field) continue;
    ByteReader values(*field);
    for (std::uint64_t* value : {&size, &stored, &offset}) {
      if (*value != 0xffffffff) continue;
      const auto large = values.take<std::uint64_t>();
      if (!large) return false;
      *value = *large;
    }
    return true;
  }
}

Result<Header> take_header(ByteReader& reader) {
  const auto fixed = reader.take_bytes(46);
  if (!fixed || at<std::uint32_t>(*fixed, 0) != kCentralHeader) return bad_file("the directory of the archive is cut off");
  const auto name = reader.take_bytes(*at<std::uint16_t>(*fixed, 28));
  const auto extra = reader.take_bytes(*at<std::uint16_t>(*fixed, 30));
  const auto comment = reader.take_bytes(*at<std::uint16_t>(*fixed, 32));
  if (!name || !extra || !comment) return bad_file("the directory of the archive is cut off");
  Header header{{reinterpret_cast<const char*>(name->data()), name->size()}, *at<std::uint32_t>(*fixed, 16), 0, 0};
  header.size = *at<std::uint32_t>(*fixed, 24);
  header.offset = *at<std::uint32_t>(*fixed, 42);
  std::uint64_t stored = *at<std::uint32_t>(*fixed, 20);
  const bool complete = apply_zip64(*extra, header.size, stored, header.offset);
  const bool plain = *at<std::uint16_t>(*fixed, 10) == 0 && (*at<std::uint16_t>(*fixed, 8) & kEncrypted) == 0;
  if (!complete || !plain || stored != header.size) {
    return bad_file(fmt::format("expected member {} to be stored as it is, neither compressed nor encrypted", in_quotes(header.name)));
  }
  return header;
}

// Where the values of a member begin: its local header has its own lengths of name and extra field.
std::optional<std::uint64_t> data_offset(ByteView bytes, std::uint64_t local) {
  if (at<std::uint32_t>(bytes, local) != kLocalHeader) return std::nullopt;
  const auto name = at<std::uint16_t>(bytes, local + 26);
  const auto extra = at<std::uint16_t>(bytes, local + 28);
  if (!name || !extra) return std::nullopt;
  return local + kLocalBytes + *name + *extra;
}

}  // namespace

Result<ZipArchive> ZipArchive::parse(ByteView bytes) {
  const auto directory = find_directory(bytes);
  if (!directory) return directory.error();
  ByteReader reader(bytes.subspan(directory.value().offset, directory.value().bytes));
  ZipArchive archive;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (std::uint64_t i = 0; i < directory.value().members; ++i) {
    const auto header = take_header(reader);
    if (!header) return header.error();
    const auto& [name, crc, size, offset] = header.value();
    const auto begin = data_offset(bytes, offset);
    if (!begin || *begin > bytes.size() || size > bytes.size() - *begin) {
      return bad_file(fmt::format("member {} is outside the archive", in_quotes(name)));
    }
    if (!archive.members_.try_emplace(name, Member{bytes.subspan(*begin, size), crc}).second) {
      return bad_file(fmt::format("member {} occurs twice", in_quotes(name)));
    }
    if (size > 0) ranges.emplace_back(*begin, *begin + size);
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) return bad_file("two members of the archive share bytes");
  }
  return archive;
}

Result<ByteView> ZipArchive::read(const std::string& name) const {
  const auto found = members_.find(name);
  if (found == members_.end()) return bad_file(fmt::format("member {} is missing", in_quotes(name)));
  if (crc32(found->second.data) != found->second.crc) {
    return Error{ErrorCode::kBadChecksum, fmt::format("the bytes of member {} changed", in_quotes(name))};
  }
  return found->second.data;
}

Result<std::string> ZipArchive::folder_of(const std::string& file) const {
  std::optional<std::string> folder;
  for (const auto& [name, member] : members_) {
    if (!name.ends_with("/" + file)) continue;
    if (folder) return bad_file(fmt::format("expected one {}, got several", file));
    folder = name.substr(0, name.size() - file.size());
  }
  if (!folder) return bad_file(fmt::format("expected a {}, as torch.save writes it, got none", file));
  return *folder;
}

}  // namespace epipe::model
