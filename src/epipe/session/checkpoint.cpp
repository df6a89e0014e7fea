#include "epipe/session/checkpoint.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>

#include "epipe/base/file.h"
#include "epipe/model/safetensors.h"
#include "epipe/wire/crc32c.h"

namespace epipe::session {
namespace {

constexpr std::size_t kKept = 2;
constexpr std::string_view kPrefix = "step-";
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

double gigabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e9; }

// Whether the files of a checkpoint are intact; reads them piece by piece.
bool is_whole(const std::string& folder) {
  constexpr std::uint64_t kMostText = 4096;
  const auto text = read_file(fmt::format("{}/{}", folder, kChecksums), kMostText);
  if (!text) return false;
  std::string expected;
  for (const std::string_view name : {kModel, kOptimizer, kEncoders}) {
    std::uint32_t checksum = 0;
    const auto read = read_pieces(fmt::format("{}/{}", folder, name), [&](ByteView piece) { checksum = wire::crc32c(piece, checksum); });
    if (!read) return false;
    expected += checksum_line(checksum, name);
  }
  return std::ranges::equal(text.value(), std::as_bytes(std::span(expected)));
}

// The files of one checkpoint.
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

  model::SafeTensors read(std::string_view name) const {
    const Bytes bytes = bytes_of(name);
    if (checksums_.find(checksum_line(bytes, name)) == std::string::npos) {
      damaged(fmt::format("{}/{} is not what was written: {} has another checksum for it", folder_, name, kChecksums));
    }
    auto file = model::parse_safetensors(bytes);
    if (!file) damaged(fmt::format("{}/{}: {}", folder_, name, file.error().message));
    return std::move(file).value();
  }

 private:
  static std::string text_of(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

  Bytes bytes_of(std::string_view name) const {
    auto bytes = read_file(fmt::format("{}/{}", folder_, name), std::numeric_limits<std::uint64_t>::max());
    if (!bytes) damaged(bytes.error().message);
    return std::move(bytes).value();
  }

  [[noreturn]] static void damaged(const std::string& what) { throw std::runtime_error("cannot resume: " + what); }

  std::string folder_;
  std::string checksums_;
};

}  // namespace

// Everything is written to a temporary folder first; renaming makes it a checkpoint.
void Checkpoints::save(const Checkpoint& checkpoint) const {
  const std::string unfinished = fmt::format("{}/{}", folder_, kUnfinished);
  const std::string finished = folder_ + "/" + checkpoint_name(checkpoint.step);
  for (const std::string_view left : {kUnfinished, kDiscarded}) require(remove_tree(fmt::format("{}/{}", folder_, left)));
  require_room(checkpoint);
  require(make_private_folders(unfinished));
  const model::Metadata metadata = {{"step", std::to_string(checkpoint.step)}, {"config", checkpoint.config}};
  std::string checksums;
  const auto write = [&](std::string_view name, const NamedTensors& tensors, const model::Metadata& about) {
    const auto bytes = model::serialize_safetensors(tensors, about);
    if (!bytes) throw std::runtime_error(fmt::format("{}: {}", name, bytes.error().message));
    require(write_private_file(fmt::format("{}/{}", unfinished, name), {bytes.value()}));
    checksums += checksum_line(bytes.value(), name);
  };
  write(kModel, checkpoint.model, metadata);
  write(kOptimizer, checkpoint.optimizer, {});
  write(kEncoders, checkpoint.encoders, {});
  require(write_private_file(fmt::format("{}/{}", unfinished, kChecksums), {std::as_bytes(std::span(checksums))}));
  discard(checkpoint.step);  // if the step is replayed
  require(rename_path(unfinished, finished));
  auto all = steps();
  for (; all.back() != checkpoint.step; all.pop_back()) discard(all.back());
  for (std::size_t i = 0; i + kKept < all.size(); ++i) discard(all[i]);
}

void Checkpoints::require_room(const Checkpoint& checkpoint) const {
  if (max_bytes_ == 0) return;
  const std::uint64_t kept = tree_bytes(folder_);
  const std::uint64_t needed = bytes_of(checkpoint.model) + bytes_of(checkpoint.optimizer) + bytes_of(checkpoint.encoders);
  if (kept + needed <= max_bytes_) return;
  throw std::runtime_error(
      fmt::format("cannot save: the checkpoint needs {:.3g} GB beside {:.3g} GB of earlier ones, but a run may keep {:.3g} GB here; "
                  "--state-quota of the server limits it",
                  gigabytes(needed), gigabytes(kept), gigabytes(max_bytes_)));
}

// A partly removed folder must not look like a checkpoint.
void Checkpoints::discard(std::uint64_t step) const {
  const auto all = steps();
  if (std::find(all.begin(), all.end(), step) == all.end()) return;
  const std::string discarded = fmt::format("{}/{}", folder_, kDiscarded);
  require(remove_tree(discarded));
  require(rename_path(folder_ + "/" + checkpoint_name(step), discarded));
  require(remove_tree(discarded));
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
  for (const std::uint64_t step : steps()) (is_whole(folder_ + "/" + checkpoint_name(step)) ? list.whole : list.damaged).push_back(step);
  return list;
}

Checkpoint Checkpoints::load(std::uint64_t step) const {
  const Reader files(folder_ + "/" + checkpoint_name(step));
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
  return checkpoint;
}

}  // namespace epipe::session
