#include "epipe/session/checkpoint.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>

#include "epipe/base/file.h"
#include "epipe/base/mapped_file.h"
#include "epipe/model/safetensors.h"
#include "epipe/wire/crc32c.h"

namespace epipe::session {
namespace {

constexpr std::size_t kKept = 2;
constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kFrozenPrefix = "frozen-";
constexpr std::string_view kUnfinished = "unfinished";
constexpr std::string_view kDiscarded = "discarded";
constexpr std::string_view kModel = "model.safetensors";
constexpr std::string_view kOptimizer = "optimizer.safetensors";
constexpr std::string_view kEncoders = "encoders.safetensors";
constexpr std::string_view kChecksums = "checksums.txt";

std::string checkpoint_name(std::uint64_t step) { return fmt::format("{}{:09}", kPrefix, step); }

// Nullopt for other folders, which are not ours.
std::optional<std::uint64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::uint64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, status] = std::from_chars(name.data() + kPrefix.size(), end, step);
  return status == std::errc() && stop == end && checkpoint_name(step) == name ? std::optional(step) : std::nullopt;
}

std::string checksum_line(std::uint32_t checksum, std::string_view name) { return fmt::format("{:08x}  {}\n", checksum, name); }
std::string checksum_line(ByteView bytes, std::string_view name) { return checksum_line(wire::crc32c(bytes), name); }

std::uint64_t bytes_of(const NamedTensors& tensors) {
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.nbytes();
  return bytes;
}

Bytes serialized(std::string_view name, const NamedTensors& tensors, const model::Metadata& about) {
  auto bytes = model::serialize_safetensors(tensors, about);
  if (!bytes) throw std::runtime_error(fmt::format("{}: {}", name, bytes.error().message));
  return std::move(bytes).value();
}

double gigabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e9; }

std::string text_of(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// Its file is named by its checksum, and so is its line among the checksums of a checkpoint: "../frozen-1a2b3c4d/model.safetensors".
std::string frozen_folder(std::uint32_t checksum) { return fmt::format("{}{:08x}", kFrozenPrefix, checksum); }
std::string frozen_line(std::uint32_t checksum) {
  return checksum_line(checksum, fmt::format("../{}/{}", frozen_folder(checksum), kModel));
}

// Nullopt for any other line.
std::optional<std::uint32_t> frozen_checksum_of(std::string_view line) {
  std::uint32_t checksum = 0;
  const auto [stop, status] = std::from_chars(line.data(), line.data() + line.size(), checksum, 16);
  return status == std::errc() && frozen_line(checksum) == line ? std::optional(checksum) : std::nullopt;
}

// Of a file, read piece by piece; nullopt if it cannot be read.
std::optional<std::uint32_t> checksum_of(const std::string& path) {
  std::uint32_t checksum = 0;
  const auto read = read_pieces(path, [&](ByteView piece) { checksum = wire::crc32c(piece, checksum); });
  return read ? std::optional(checksum) : std::nullopt;
}

// A checkpoint's list of checksums, as far as it can be read.
std::string checksums_in(const std::string& folder) {
  constexpr std::uint64_t kMostText = 4096;
  const auto text = read_file(fmt::format("{}/{}", folder, kChecksums), kMostText);
  return text ? text_of(text.value()) : "";
}

// Whether the files of a checkpoint are intact. `frozen_is_whole`: whether that of its frozen parameters is.
bool is_whole(const std::string& folder, const std::function<bool(std::uint32_t checksum)>& frozen_is_whole) {
  const std::string text = checksums_in(folder);
  std::string expected;
  for (const std::string_view name : {kModel, kOptimizer, kEncoders}) {
    const auto checksum = checksum_of(fmt::format("{}/{}", folder, name));
    if (!checksum) return false;
    expected += checksum_line(*checksum, name);
  }
  if (!text.starts_with(expected)) return false;
  const std::string_view rest = std::string_view(text).substr(expected.size());
  const auto frozen = frozen_checksum_of(rest);
  return rest.empty() || (frozen && frozen_is_whole(*frozen));
}

// The files of one checkpoint, in the order in which they were written.
class Reader {
 public:
  explicit Reader(std::string folder) : folder_(std::move(folder)) {
    const auto files = list_folder(folder_);
    if (std::find(files.begin(), files.end(), kChecksums) == files.end()) {
      throw std::runtime_error(fmt::format(
          "cannot resume: {} has no {}; it is damaged, or of an earlier version of epipe, which can resume it", folder_, kChecksums));
    }
    checksums_ = text_of(bytes_of(kChecksums));
  }

  // Null: the checkpoint has none.
  std::shared_ptr<const NamedTensors> read_frozen() const {
    if (checksums_.empty()) return nullptr;
    const auto checksum = frozen_checksum_of(checksums_);
    if (!checksum) damaged(fmt::format("{}/{} is not what was written: expected no line but those of its files", folder_, kChecksums));
    const std::string path = fmt::format("{}/../{}/{}", folder_, frozen_folder(*checksum), kModel);
    auto mapped = MappedFile::open(path);
    if (!mapped) damaged(mapped.error().message);
    if (wire::crc32c(mapped.value()->bytes()) != *checksum) {
      damaged(fmt::format("{} is not what was written: {} has another checksum for it", path, kChecksums));
    }
    auto file = model::parse_safetensors(mapped.value());
    if (!file) damaged(fmt::format("{}: {}", path, file.error().message));
    return std::make_shared<const NamedTensors>(std::move(file.value().tensors));
  }

  model::SafeTensors read(std::string_view name) {
    const Bytes bytes = bytes_of(name);
    if (!take_line(checksum_line(bytes, name))) {
      damaged(fmt::format("{}/{} is not what was written: {} has another checksum for it", folder_, name, kChecksums));
    }
    auto file = model::parse_safetensors(bytes);
    if (!file) damaged(fmt::format("{}/{}: {}", folder_, name, file.error().message));
    return std::move(file).value();
  }

 private:
  bool take_line(const std::string& line) {
    if (!checksums_.starts_with(line)) return false;
    checksums_.erase(0, line.size());
    return true;
  }

  Bytes bytes_of(std::string_view name) const {
    auto bytes = read_file(fmt::format("{}/{}", folder_, name), std::numeric_limits<std::uint64_t>::max());
    if (!bytes) damaged(bytes.error().message);
    return std::move(bytes).value();
  }

  [[noreturn]] static void damaged(const std::string& what) { throw std::runtime_error("cannot resume: " + what); }

  std::string folder_;
  std::string checksums_;  // of files that were not read yet
};

}  // namespace

// Everything is written to a temporary folder first; renaming makes it a checkpoint.
void Checkpoints::save(const Checkpoint& checkpoint) {
  const std::string unfinished = fmt::format("{}/{}", folder_, kUnfinished);
  for (const std::string_view left : {kUnfinished, kDiscarded}) require(remove_tree(fmt::format("{}/{}", folder_, left)));
  const bool is_there = !checkpoint.frozen || is_folder(folder_ + "/" + frozen_folder(frozen_checksum_));
  if (checkpoint.frozen != frozen_ || !is_there) require_frozen(checkpoint);
  require_room(checkpoint, 0);
  require(make_private_folders(unfinished));
  const model::Metadata metadata = {{"step", std::to_string(checkpoint.step)}, {"config", checkpoint.config}};
  std::string checksums;
  const auto write = [&](std::string_view name, const NamedTensors& tensors, const model::Metadata& about) {
    const Bytes bytes = serialized(name, tensors, about);
    require(write_private_file(fmt::format("{}/{}", unfinished, name), {bytes}));
    checksums += checksum_line(bytes, name);
  };
  write(kModel, checkpoint.model, metadata);
  write(kOptimizer, checkpoint.optimizer, {});
  write(kEncoders, checkpoint.encoders, {});
  if (checkpoint.frozen) checksums += frozen_line(frozen_checksum_);
  require(write_private_file(fmt::format("{}/{}", unfinished, kChecksums), {std::as_bytes(std::span(checksums))}));
  discard(checkpoint_name(checkpoint.step));  // if the step is replayed
  require(rename_path(unfinished, folder_ + "/" + checkpoint_name(checkpoint.step)));
  auto all = steps();
  for (; all.back() != checkpoint.step; all.pop_back()) discard(checkpoint_name(all.back()));
  for (std::size_t i = 0; i + kKept < all.size(); ++i) discard(checkpoint_name(all[i]));
  discard_unused_frozen();
}

// Their file is there and intact when this returns. Written like a checkpoint, unless an earlier one has it; a damaged one is replaced.
void Checkpoints::require_frozen(const Checkpoint& checkpoint) {
  frozen_ = nullptr;
  if (checkpoint.frozen) {
    const Bytes bytes = serialized(kFrozenPrefix, *checkpoint.frozen, {});
    frozen_checksum_ = wire::crc32c(bytes);
    const std::string name = frozen_folder(frozen_checksum_);
    if (checksum_of(fmt::format("{}/{}/{}", folder_, name, kModel)) != frozen_checksum_) {
      require_room(checkpoint, bytes.size());
      const std::string unfinished = fmt::format("{}/{}", folder_, kUnfinished);
      require(make_private_folders(unfinished));
      require(write_private_file(fmt::format("{}/{}", unfinished, kModel), {bytes}));
      discard(name);
      require(rename_path(unfinished, folder_ + "/" + name));
    }
  }
  frozen_ = checkpoint.frozen;
}

void Checkpoints::require_room(const Checkpoint& checkpoint, std::uint64_t frozen_bytes) const {
  if (max_bytes_ == 0) return;
  const std::uint64_t kept = tree_bytes(folder_);
  const std::uint64_t needed =
      bytes_of(checkpoint.model) + bytes_of(checkpoint.optimizer) + bytes_of(checkpoint.encoders) + frozen_bytes;
  if (kept + needed <= max_bytes_) return;
  throw std::runtime_error(
      fmt::format("cannot save: the checkpoint needs {:.3g} GB beside {:.3g} GB of earlier ones, but a run may keep {:.3g} GB here; "
                  "--state-quota of the server limits it",
                  gigabytes(needed), gigabytes(kept), gigabytes(max_bytes_)));
}

// A partly removed folder must not look like a checkpoint.
void Checkpoints::discard(const std::string& name) const {
  if (!is_folder(folder_ + "/" + name)) return;
  const std::string discarded = fmt::format("{}/{}", folder_, kDiscarded);
  require(remove_tree(discarded));
  require(rename_path(folder_ + "/" + name, discarded));
  require(remove_tree(discarded));
}

// Which no checkpoint names.
void Checkpoints::discard_unused_frozen() const {
  std::set<std::string> used;
  for (const std::uint64_t step : steps()) {
    std::string text = checksums_in(folder_ + "/" + checkpoint_name(step));
    for (std::size_t end = text.find('\n'); end != std::string::npos; text.erase(0, end + 1), end = text.find('\n')) {
      if (const auto checksum = frozen_checksum_of(text.substr(0, end + 1))) used.insert(frozen_folder(*checksum));
    }
  }
  for (const std::string& name : list_folder(folder_)) {
    if (name.starts_with(kFrozenPrefix) && !used.contains(name)) discard(name);
  }
}

std::vector<std::uint64_t> Checkpoints::steps() const {
  std::vector<std::uint64_t> all;
  for (const std::string& name : list_folder(folder_)) {
    if (const auto step = step_of(name)) all.push_back(*step);
  }
  std::sort(all.begin(), all.end());
  return all;
}

bool Checkpoints::none() const {
  struct stat status {};
  if (::stat(folder_.c_str(), &status) != 0 && errno == ENOENT) return true;
  const auto names = read_folder(folder_);
  return names && std::none_of(names.value().begin(), names.value().end(), [](const std::string& name) { return step_of(name); });
}

CheckpointList Checkpoints::verify() const {
  CheckpointList list;
  std::map<std::uint32_t, bool> known;  // frozen parameters that were read: checkpoints share them
  const auto frozen_is_whole = [&](std::uint32_t checksum) {
    const auto [found, is_new] = known.try_emplace(checksum, false);
    if (is_new) found->second = checksum_of(fmt::format("{}/{}/{}", folder_, frozen_folder(checksum), kModel)) == checksum;
    return found->second;
  };
  for (const std::uint64_t step : steps()) {
    (is_whole(folder_ + "/" + checkpoint_name(step), frozen_is_whole) ? list.whole : list.damaged).push_back(step);
  }
  return list;
}

Checkpoint Checkpoints::load(std::uint64_t step) const {
  Reader files(folder_ + "/" + checkpoint_name(step));
  auto model = files.read(kModel);
  if (model.metadata["step"] != std::to_string(step) || !model.metadata.contains("config")) {
    throw std::runtime_error(
        fmt::format("cannot resume: {}/{}/{} does not say that it is of step {}", folder_, checkpoint_name(step), kModel, step));
  }
  Checkpoint checkpoint;
  checkpoint.step = step;
  checkpoint.config = model.metadata.at("config");
  checkpoint.model = std::move(model.tensors);
  checkpoint.optimizer = files.read(kOptimizer).tensors;
  checkpoint.encoders = files.read(kEncoders).tensors;
  checkpoint.frozen = files.read_frozen();
  return checkpoint;
}

}  // namespace epipe::session
