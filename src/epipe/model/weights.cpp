#include "epipe/model/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "epipe/base/file.h"
#include "epipe/layer/lora.h"
#include "epipe/model/hf_folder.h"
#include "epipe/model/safetensors.h"
#include "epipe/model/state_dict.h"

namespace epipe::model {
namespace {

constexpr std::uint64_t kMaxWeightsBytes = std::uint64_t{1} << 36;
constexpr std::size_t kMaxListedNames = 6;
constexpr std::string_view kZip = "PK\x03\x04";  // a state dict by torch.save
constexpr std::string_view kOldStateDict = "\x80\x02";
constexpr std::string_view kCounter = "num_batches_tracked";

bool starts_with(ByteView bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

Result<NamedTensors> parse(ByteView bytes) {
  if (starts_with(bytes, kZip)) return parse_state_dict(bytes);
  if (starts_with(bytes, kOldStateDict)) {
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

// How Hugging Face files differ from epipe's models.
struct HfFamily {
  std::string_view marker;                      // a tensor that these models have
  std::string_view prefix;                      // missing in a file without a task head
  std::array<std::string_view, 4> other_tasks;  // name prefixes of parts for other tasks
  std::array<std::string_view, 3> computed;     // name suffixes of tables that older versions saved
};
constexpr std::array kHfFamilies = {
    HfFamily{
        "roberta.embeddings.word_embeddings.weight", "roberta.", {"lm_head.", "roberta.pooler.", "pooler."}, {"embeddings.position_ids"}},
    HfFamily{"bert.embeddings.word_embeddings.weight", "bert.", {"cls.", "qa_outputs."}, {"embeddings.position_ids"}},
    HfFamily{"transformer.wte.weight", "transformer.", {"lm_head.", "score."}, {".attn.bias", ".attn.masked_bias"}},
    HfFamily{"model.embed_tokens.weight", "model.", {"lm_head.", "score."}, {".rotary_emb.inv_freq"}},
};

const HfFamily* family_of(const NamedTensors& to) {
  const auto* const found =
      std::find_if(kHfFamilies.begin(), kHfFamilies.end(), [&](const HfFamily& family) { return to.contains(std::string(family.marker)); });
  return found == kHfFamilies.end() ? nullptr : found;
}

// "encoder.layer.0..." of a bare RobertaModel -> "roberta.encoder.layer.0..."
void add_prefix(NamedTensors& from, const NamedTensors& to) {
  const HfFamily* const family = family_of(to);
  if (family == nullptr) return;
  for (const auto& [name, tensor] : NamedTensors(from)) {
    const std::string full = std::string(family->prefix) + name;
    if (to.contains(name) || !to.contains(full) || from.contains(full)) continue;
    from[full] = tensor;
    from.erase(name);
  }
}

// Removes parts for other tasks, and tables that are computed anyway; returns the names of the former.
std::vector<std::string> take_other_tasks(NamedTensors& from, const NamedTensors& to) {
  const HfFamily* const family = family_of(to);
  if (family == nullptr) return {};
  std::vector<std::string> names;
  const auto any_of = [](const auto& list, const auto& fits) {
    return std::any_of(list.begin(), list.end(), [&](std::string_view part) { return !part.empty() && fits(part); });
  };
  for (const auto& [name, tensor] : NamedTensors(from)) {
    if (to.contains(name)) continue;
    const bool computed = any_of(family->computed, [&key = name](std::string_view end) { return key.ends_with(end); });
    const bool other = any_of(family->other_tasks, [&key = name](std::string_view begin) { return key.starts_with(begin); });
    if (other && !computed) names.push_back(name);
    if (other || computed) from.erase(name);
  }
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

// Names and shapes of a model's tensors, and which of them may keep their initial values.
struct Expected {
  NamedTensors tensors;
  std::vector<std::string> may_be_new;
};

void add_layer(Expected& expected, const layer::Layer& layer, bool last, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (last || layer.name().starts_with(kCodecPrefix)) expected.may_be_new.push_back(name);
  }
  expected.tensors.insert(tensors.begin(), tensors.end());
}

Expected expected_by(const Model& model) {
  Expected expected;
  for (const auto& layer : model.layers) {
    if (layer) add_layer(expected, *layer, layer == model.layers.back(), tensors_of({"", {layer}}));
  }
  return expected;
}

// Makes layers one at a time and keeps no values.
Expected expected_by(const Architecture& architecture) {
  Expected expected;
  for (std::size_t l = 0; l < architecture.layers.size(); ++l) {
    const auto layer = architecture.layers[l].make();
    NamedTensors shapes;
    for (const auto& [name, tensor] : tensors_of({"", {layer}})) {
      shapes[name] = torch::empty(tensor.sizes(), torch::TensorOptions(tensor.scalar_type()).device(torch::kMeta));
    }
    add_layer(expected, *layer, l + 1 == architecture.layers.size(), shapes);
  }
  return expected;
}

// Removes tensors that may start fresh and have no match from both sides; returns their names.
std::vector<std::string> take_new_parts(Expected& expected, NamedTensors& from) {
  std::vector<std::string> names;
  for (const std::string& name : expected.may_be_new) {
    if (!expected.tensors.contains(name)) continue;
    const auto found = from.find(name);
    if (found != from.end() && found->second.sizes() == expected.tensors.at(name).sizes()) continue;
    if (found != from.end()) from.erase(found);
    expected.tensors.erase(name);
    names.push_back(name);
  }
  return names;
}

// Removes thin matrices that are not in the file: they add nothing initially, and an adapter may skip layers. Returns how many.
std::size_t take_missing_lora(Expected& expected, const NamedTensors& from) {
  return std::erase_if(expected.tensors, [&](const auto& item) { return layer::is_lora(item.first) && !from.contains(item.first); });
}

// Brings both sides to the same names and shapes; the error says why that is impossible. Returns notes for the user.
Result<std::vector<std::string>> fit(NamedTensors& from, Expected& expected, NewParts new_parts) {
  std::vector<std::string> notes;
  add_prefix(from, expected.tensors);
  if (const auto ignored = take_other_tasks(from, expected.tensors); !ignored.empty())
    notes.push_back("ignored, not part of the model: " + list(ignored));
  fit_counters(from, expected.tensors);
  const auto adapted = [](const auto& item) { return layer::is_lora(item.first); };
  if (const std::size_t missing = take_missing_lora(expected, from); missing > 0 && std::any_of(from.begin(), from.end(), adapted))
    notes.push_back(fmt::format("the adapter has nothing for {} linear layers", missing / 2));
  if (new_parts == NewParts::kHeadAndCodec) {
    if (const auto fresh = take_new_parts(expected, from); !fresh.empty())
      notes.push_back("start fresh, the weights have none that fit: " + list(fresh));
  }
  EPIPE_TRY(check_fits(from, expected.tensors));
  return notes;
}

}  // namespace

Result<NamedTensors> read_weights(const std::string& path) {
  if (is_folder(path)) {
    auto mapped = map_weights(path);
    if (!mapped) return mapped.error();
    return std::move(mapped.value().tensors);
  }
  const auto bytes = read_file(path, kMaxWeightsBytes);
  if (!bytes) return bytes.error();
  auto tensors = parse(bytes.value());
  if (!tensors) return Error{tensors.error().code, fmt::format("{}: {}", path, tensors.error().message)};
  return tensors;
}

namespace {

// Several files form one set of weights; no tensor may be in two of them.
Result<MappedWeights> map_folder(const std::string& folder) {
  const auto files = hf_weight_files(folder);
  if (!files) return files.error();
  MappedWeights all;
  for (const std::string& path : files.value()) {
    auto part = map_weights(path);
    if (!part) return part.error();
    all.tensors.merge(part.value().tensors);
    if (!part.value().tensors.empty()) {
      return Error{ErrorCode::kBadFile,
                   fmt::format("{}: {} is in another file of {} already", path, in_quotes(part.value().tensors.begin()->first), folder)};
    }
    all.files.insert(all.files.end(), part.value().files.begin(), part.value().files.end());
  }
  return all;
}

}  // namespace

Result<MappedWeights> map_weights(const std::string& path) {
  if (is_folder(path)) return map_folder(path);
  auto file = MappedFile::open(path);
  if (!file) return file.error();
  const ByteView bytes = file.value()->bytes();
  const auto named = [&path](const Error& error) { return Error{error.code, fmt::format("{}: {}", path, error.message)}; };
  if (starts_with(bytes, kZip) || starts_with(bytes, kOldStateDict)) {
    auto tensors = parse(bytes);
    if (!tensors) return named(tensors.error());
    return MappedWeights{std::move(tensors).value(), {}};
  }
  auto mapped = parse_safetensors(file.value());
  if (!mapped) return named(mapped.error());
  return MappedWeights{std::move(mapped.value().tensors), {std::move(file).value()}};
}

Result<std::vector<std::string>> load_weights(const Model& model, NamedTensors from, NewParts new_parts) {
  Expected expected = expected_by(model);
  auto notes = fit(from, expected, new_parts);
  if (!notes) return notes.error();
  EPIPE_TRY(load_into(from, expected.tensors));
  return notes;
}

Result<FittedWeights> fit_weights(const Architecture& architecture, NamedTensors from, NewParts new_parts) {
  Expected expected = expected_by(architecture);
  auto notes = fit(from, expected, new_parts);
  if (!notes) return notes.error();
  return FittedWeights{std::move(from), std::move(notes).value()};
}

}  // namespace epipe::model
