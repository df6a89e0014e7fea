#include "epipe/model/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "epipe/base/file.h"
#include "epipe/model/safetensors.h"
#include "epipe/model/state_dict.h"

namespace epipe::model {
namespace {

constexpr std::uint64_t kMaxWeightsBytes = std::uint64_t{1} << 36;
constexpr std::size_t kMaxListedNames = 6;
// Of a RoBERTa that was trained for another task, or buffers that older versions saved.
constexpr std::array<std::string_view, 4> kOtherTasks = {"lm_head.", "roberta.pooler.", "pooler.", "roberta.embeddings.position_ids"};
constexpr std::string_view kRobertaPrefix = "roberta.";
constexpr std::string_view kCounter = "num_batches_tracked";

bool starts_with(ByteView bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

Result<NamedTensors> parse(ByteView bytes) {
  if (starts_with(bytes, "PK\x03\x04")) return parse_state_dict(bytes);
  if (starts_with(bytes, "\x80\x02")) {
    return Error{ErrorCode::kBadFile,
                 "expected a state dict of PyTorch 1.6 or later, got an older one; save it again with torch.save(torch.load(FILE), FILE)"};
  }
  auto file = parse_safetensors(bytes);
  if (!file) return file.error();
  return std::move(file.value().tensors);
}

std::string list(const std::vector<std::string>& names) {
  const auto shown = std::min(names.size(), kMaxListedNames);
  const std::string rest = names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : "";
  return fmt::format("{}{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "), rest);
}

// "encoder.layer.0..." of a bare RobertaModel -> "roberta.encoder.layer.0..."
void add_prefix(NamedTensors& from, const NamedTensors& to) {
  for (const auto& [name, tensor] : NamedTensors(from)) {
    const std::string full = std::string(kRobertaPrefix) + name;
    if (to.contains(name) || !to.contains(full) || from.contains(full)) continue;
    from[full] = tensor;
    from.erase(name);
  }
}

// Takes out what belongs to other tasks; its names.
std::vector<std::string> take_other_tasks(NamedTensors& from, const NamedTensors& to) {
  if (!to.contains("roberta.embeddings.word_embeddings.weight")) return {};
  std::vector<std::string> names;
  for (const auto& [name, tensor] : from) {
    const auto fits = [&key = name](std::string_view other) { return key.starts_with(other); };
    if (!to.contains(name) && std::any_of(kOtherTasks.begin(), kOtherTasks.end(), fits)) names.push_back(name);
  }
  for (const auto& name : names) from.erase(name);
  return names;
}

void fit_counters(NamedTensors& from, const NamedTensors& to) {
  for (const auto& [name, target] : to) {
    if (!name.ends_with(kCounter)) continue;
    torch::Tensor& tensor = from[name];
    if (!tensor.defined()) tensor = torch::zeros({}, torch::kInt64);
    if (tensor.numel() == 1) tensor = tensor.reshape(target.sizes());
  }
}

// Takes tensors that may start fresh and find nothing that fits out of both sides; their names.
std::vector<std::string> take_new_parts(const Model& model, NamedTensors& from, NamedTensors& to) {
  std::vector<std::string> names;
  for (const auto& layer : model.layers) {
    if (!layer || (layer != model.layers.back() && !layer->name().starts_with(kCodecPrefix))) continue;
    for (const auto& [name, tensor] : tensors_of({"", {layer}})) {
      const auto found = from.find(name);
      if (found != from.end() && found->second.sizes() == tensor.sizes()) continue;
      if (found != from.end()) from.erase(found);
      to.erase(name);
      names.push_back(name);
    }
  }
  return names;
}

}  // namespace

Result<NamedTensors> read_weights(const std::string& path) {
  const auto bytes = read_file(path, kMaxWeightsBytes);
  if (!bytes) return bytes.error();
  auto tensors = parse(bytes.value());
  if (!tensors) return Error{tensors.error().code, fmt::format("{}: {}", path, tensors.error().message)};
  return tensors;
}

Result<std::vector<std::string>> load_weights(const Model& model, NamedTensors from, NewParts new_parts) {
  NamedTensors to = tensors_of(model);
  std::vector<std::string> notes;
  add_prefix(from, to);
  if (const auto ignored = take_other_tasks(from, to); !ignored.empty())
    notes.push_back("ignored, not part of the model: " + list(ignored));
  fit_counters(from, to);
  if (new_parts == NewParts::kHeadAndCodec) {
    if (const auto fresh = take_new_parts(model, from, to); !fresh.empty())
      notes.push_back("start fresh, the weights have none that fit: " + list(fresh));
  }
  EPIPE_TRY(load_into(from, to));
  return notes;
}

}  // namespace epipe::model
