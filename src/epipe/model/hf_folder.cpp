#include "epipe/model/hf_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <set>

#include "epipe/base/bounded_json.h"
#include "epipe/base/file.h"

namespace epipe::model {
namespace {

constexpr std::uint64_t kMaxHfConfigBytes = 1 << 20;
constexpr std::uint64_t kMaxIndexBytes = 64 << 20;
constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

bool is_file(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

Result<std::string> read_text(const std::string& path, std::uint64_t most) {
  const auto bytes = read_file(path, most);
  if (!bytes) return bytes.error();
  return std::string(reinterpret_cast<const char*>(bytes.value().data()), bytes.value().size());
}

// A name in an index may not lead out of the folder.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name.find('\0') == std::string::npos && name != "." && name != "..";
}

Result<std::vector<std::string>> files_of_index(const std::string& folder) {
  const std::string path = fmt::format("{}/{}", folder, kIndexFile);
  const auto text = read_text(path, kMaxIndexBytes);
  if (!text) return text.error();
  const auto index = parse_bounded_json(text.value(), {.allocated = std::size_t{1} << 20});
  if (!index || !index.value().is_object() || !index.value().contains("weight_map") || !index.value()["weight_map"].is_object()) {
    return bad_file(fmt::format("{}: expected a JSON object with a weight_map from tensors to files", path));
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : index.value()["weight_map"].items()) {
    if (!file.is_string() || !is_plain_name(file.get<std::string>())) {
      return bad_file(fmt::format("{}: expected the name of a file beside it for every tensor", path));
    }
    names.insert(file.get<std::string>());
  }
  std::vector<std::string> files;
  for (const std::string& name : names) {
    files.push_back(fmt::format("{}/{}", folder, name));
    if (!is_file(files.back())) return bad_file(fmt::format("{} names {}, which is not there; fetch it as well", path, name));
  }
  if (files.empty()) return bad_file(fmt::format("{} names no file", path));
  return files;
}

}  // namespace

std::optional<std::string> hf_folder_of(std::string_view model) {
  constexpr std::string_view kPrefix = "hf:";
  if (!model.starts_with(kPrefix) || model.substr(kPrefix.size()).starts_with('{')) return std::nullopt;
  return std::string(model.substr(kPrefix.size()));
}

Result<std::string> read_hf_config(const std::string& folder) {
  if (!is_folder(folder)) return bad_file(fmt::format("expected a folder with config.json, got {}", folder));
  auto text = read_text(folder + "/config.json", kMaxHfConfigBytes);
  if (!text)
    return bad_file(
        fmt::format("{}; hf: names a folder that save_pretrained() of Hugging Face's transformers wrote", text.error().message));
  return text;
}

Result<std::vector<std::string>> hf_weight_files(const std::string& folder) {
  const std::string single = fmt::format("{}/{}", folder, kWeightsFile);
  if (is_file(single)) return std::vector<std::string>{single};
  if (is_file(fmt::format("{}/{}", folder, kIndexFile))) return files_of_index(folder);
  return bad_file(fmt::format("expected {} or {} in {}; neither is there", kWeightsFile, kIndexFile, folder));
}

bool has_hf_weights(const std::string& folder) {
  return is_file(fmt::format("{}/{}", folder, kWeightsFile)) || is_file(fmt::format("{}/{}", folder, kIndexFile));
}

}  // namespace epipe::model
