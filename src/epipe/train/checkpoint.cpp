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

// The complete checkpoints, oldest first.
std::vector<std::string> complete(const std::string& folder) {
  std::vector<std::string> names;
  for (const std::string& name : list_folder(folder)) {
    if (name.starts_with(kPrefix)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

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
  require(remove_tree(finished));  // a replayed step
  require(rename_path(unfinished, finished));
  const auto names = complete(folder_);
  for (std::size_t i = 0; i + kKept < names.size(); ++i) require(remove_tree(folder_ + "/" + names[i]));
}

std::optional<Checkpoint> Checkpoints::load_newest() const {
  const auto names = complete(folder_);
  if (names.empty()) return std::nullopt;
  const std::string folder = folder_ + "/" + names.back();
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
