#include "epipe/model/script_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <istream>
#include <stdexcept>

#include "epipe/base/file.h"
#include "epipe/base/sha256.h"
#include "epipe/model/zoo.h"

namespace epipe::model {
namespace {

constexpr std::string_view kHashPrefix = "sha256=";
constexpr std::size_t kHashDigits = 64;

std::string hash_of(ByteView bytes) {
  std::string text;
  for (const std::byte b : sha256(bytes)) text += fmt::format("{:02x}", std::to_integer<int>(b));
  return text;
}

bool is_hash(std::string_view text) {
  return text.size() == kHashDigits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// A file in memory, for a stream to read without a copy of it.
class ByteBuffer final : public std::streambuf {
 public:
  explicit ByteBuffer(Bytes& bytes) {
    char* const begin = reinterpret_cast<char*>(bytes.data());
    setg(begin, begin, begin + bytes.size());
  }

 private:
  pos_type seekoff(off_type offset, std::ios_base::seekdir from, std::ios_base::openmode) override {
    const char* const base = from == std::ios_base::beg ? eback() : from == std::ios_base::cur ? gptr() : egptr();
    const off_type at = base - eback() + offset;
    if (at < 0 || at > egptr() - eback()) return pos_type(off_type(-1));
    setg(eback(), eback() + at, egptr());
    return pos_type(at);
  }
  pos_type seekpos(pos_type position, std::ios_base::openmode mode) override { return seekoff(position, std::ios_base::beg, mode); }
};

Architecture from_installed(const ScriptFiles& installed, const std::string& hash) {
  if (!is_hash(hash)) throw std::invalid_argument("expected torchscript:sha256= and 64 hexadecimal digits in lower case");
  const auto found = installed.find(hash);
  if (found == installed.end()) {
    throw std::invalid_argument(
        fmt::format("there is no TorchScript file with SHA-256 {} here; its operator installs it: copy the file, named *.pt, into the "
                    "folder of `epipe serve --models DIR` and start the server again",
                    hash));
  }
  auto bytes = read_file(found->second, kMaxScriptBytes);
  if (!bytes || hash_of(bytes.value()) != hash) {
    throw std::invalid_argument(
        fmt::format("the TorchScript file with SHA-256 {} was changed or removed here since the server started; start it again", hash));
  }
  ByteBuffer buffer(bytes.value());
  std::istream stream(&buffer);
  return read_torchscript(stream, "the installed file " + hash);
}

}  // namespace

Result<std::string> script_hash(const std::string& path) {
  const auto bytes = read_file(path, kMaxScriptBytes);
  if (!bytes) return bytes.error();
  return hash_of(bytes.value());
}

Result<ScriptFiles> read_script_folder(const std::string& folder) {
  const auto names = read_folder(folder);
  if (!names) return names.error();
  ScriptFiles files;
  for (const std::string& name : names.value()) {
    if (!name.ends_with(".pt")) continue;
    const std::string path = fmt::format("{}/{}", folder, name);
    const auto hash = script_hash(path);
    if (!hash) return hash.error();
    files[hash.value()] = path;
    if (files.size() > kMaxScriptFiles) return Error{ErrorCode::kTooLarge, fmt::format("{}: more than {} files", folder, kMaxScriptFiles)};
  }
  return files;
}

Registry::Entry torchscript_entry(ScriptFiles installed) {
  const auto make = [installed = std::move(installed)](const data::DataSpec& data, const std::string& argument) {
    return argument.starts_with(kHashPrefix) ? from_installed(installed, argument.substr(kHashPrefix.size()))
                                             : make_torchscript(data, argument);
  };
  const auto to_hash = [](const std::string& path) {
    const auto hash = script_hash(path);
    if (!hash) throw std::invalid_argument(hash.error().text());
    return std::string(kHashPrefix) + hash.value();
  };
  return {"torchscript", "FILE", data::DataSpec::Kind::kImages, make, std::string(kHashPrefix), to_hash};
}

}  // namespace epipe::model
