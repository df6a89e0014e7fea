#pragma once

#include <string>
#include <vector>

#include "epipe/base/mapped_file.h"
#include "epipe/base/result.h"
#include "epipe/model/model.h"

// Weights files of torchvision, Hugging Face and epipe.
namespace epipe::model {

// A safetensors file, or a state dict by torch.save (.pth, .pt, .bin); which one is seen from its first bytes. Or a folder by Hugging Face
// (hf_folder.h).
Result<NamedTensors> read_weights(const std::string& path);

// The same without reading the values of safetensors before they are needed: they lie in `files`, and must not be written to. Without any
// for a state dict, which is in memory.
struct MappedWeights {
  NamedTensors tensors;
  std::vector<std::shared_ptr<MappedFile>> files;  // shared with the tensors
};
Result<MappedWeights> map_weights(const std::string& path);

enum class NewParts : std::uint8_t {
  kNone,         // every tensor of the model comes from the file
  kHeadAndCodec  // the last layer and inserted codecs keep their first values where the file has no tensor that fits
};

// Puts a file's tensors into the model, all or nothing. An error lists names that are missing, extra or of another shape. Returns what its
// user should know, one sentence each: parts that start fresh, tensors that were ignored.
//
// Names are torchvision's or Hugging Face's. A model of Hugging Face's may come without its head, without the prefix of its task
// ("roberta.", "transformer.", "model."), with parts for other tasks, and with tables that are computed anyway. BatchNorm's
// num_batches_tracked may be missing or of shape [1].
Result<std::vector<std::string>> load_weights(const Model& model, NamedTensors from, NewParts new_parts);

// The same for a model of which nobody has built all layers: the file's tensors under the model's names.
struct FittedWeights {
  NamedTensors tensors;
  std::vector<std::string> notes;
};
Result<FittedWeights> fit_weights(const Architecture& architecture, NamedTensors from, NewParts new_parts);

// Layers whose name begins so were inserted around a cut.
inline constexpr std::string_view kCodecPrefix = "codec.";

}  // namespace epipe::model
