#include "epipe/train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <stdexcept>

#include "epipe/base/file.h"
#include "epipe/model/safetensors.h"

namespace epipe::train {
namespace {

constexpr std::size_t kKept = 2;
constexpr std::string_view kPrefix = "step-";

void require(Result<void> result) {
  if (!result) throw std::runtime_error(result.error().message);
}

std::string name_of(std::uint64_t step) { return fmt::format("{}{:09}", kPrefix, step); }

// Nothing for other folders, which are somebody else's.
std::optional<std::uint64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::uint64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, status] = std::from_chars(name.data() + kPrefix.size(), end, step);
  return status == std::errc() && stop == end && name_of(step) == name ? std::optional(step) : std::nullopt;
}

model::SafeTensors read(const std::string& folder, std::string_view name) {
  auto file = model::read_safetensors(fmt::format("{}/{}", folder, name));
  if (file) return std::move(file).value();
  throw std::runtime_error(fmt::format("cannot resume: {}; without the folder {} the checkpoint before it is used, if there is one",
                                       file.error().message, folder));
}

}  // namespace

// Everything goes to a folder of another name first; the rename makes it a checkpoint.
void Checkpoints::save(const Checkpoint& checkpoint) const {
  const std::string unfinished = folder_ + "/unfinished";
  const std::string finished = folder_ + "/" + name_of(checkpoint.step);
  require(remove_tree(unfinished));
  require(make_folders(unfinished));
  const std::map<std::string, std::string> metadata = {{"step", std::to_string(checkpoint.step)}, {"config", checkpoint.config}};
  require(model::write_safetensors(unfinished + "/model.safetensors", checkpoint.model, metadata));
  require(model::write_safetensors(unfinished + "/optimizer.safetensors", checkpoint.optimizer, {}));
  require(model::write_safetensors(unfinished + "/encoders.safetensors", checkpoint.encoders, {}));
  require(sync_folder(unfinished));
  discard(checkpoint.step);  // of a step that is replayed
  require(rename_path(unfinished, finished));
  require(sync_folder(folder_));
  auto all = steps();
  for (; all.back() != checkpoint.step; all.pop_back()) discard(all.back());
  for (std::size_t i = 0; i + kKept < all.size(); ++i) discard(all[i]);
}

// What is half removed must not look like a checkpoint.
void Checkpoints::discard(std::uint64_t step) const {
  const auto all = steps();
  if (std::find(all.begin(), all.end(), step) == all.end()) return;
  const std::string discarded = folder_ + "/discarded";
  require(remove_tree(discarded));
  require(rename_path(folder_ + "/" + name_of(step), discarded));
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

Checkpoint Checkpoints::load(std::uint64_t step) const {
  const std::string folder = folder_ + "/" + name_of(step);
  auto model = read(folder, "model.safetensors");
  Checkpoint checkpoint;
  checkpoint.step = std::stoull(model.metadata.at("step"));
  checkpoint.config = model.metadata.at("config");
  checkpoint.model = std::move(model.tensors);
  checkpoint.optimizer = read(folder, "optimizer.safetensors").tensors;
  checkpoint.encoders = read(folder, "encoders.safetensors").tensors;
  return checkpoint;
}

}  // namespace epipe::train
