#include "epipe/train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
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

model::SafeTensors read(const std::string& path) {
  auto file = model::read_safetensors(path);
  if (!file) throw std::runtime_error(fmt::format("cannot resume: {}", file.error().message));
  return std::move(file).value();
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
  discard(checkpoint.step);  // of a step that is replayed
  require(rename_path(unfinished, finished));
  const auto all = steps();
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
    if (name.starts_with(kPrefix)) all.push_back(std::stoull(name.substr(kPrefix.size())));
  }
  std::sort(all.begin(), all.end());
  return all;
}

Checkpoint Checkpoints::load(std::uint64_t step) const {
  const std::string folder = folder_ + "/" + name_of(step);
  auto model = read(folder + "/model.safetensors");
  Checkpoint checkpoint;
  checkpoint.step = std::stoull(model.metadata.at("step"));
  checkpoint.config = model.metadata.at("config");
  checkpoint.model = std::move(model.tensors);
  checkpoint.optimizer = read(folder + "/optimizer.safetensors").tensors;
  checkpoint.encoders = read(folder + "/encoders.safetensors").tensors;
  return checkpoint;
}

}  // namespace epipe::train
