#pragma once

#include <string>
#include <vector>

#include "epipe/base/mapped_file.h"
#include "epipe/base/result.h"
#include "epipe/model/model.h"

// Weights files of torchvision, Hugging Face and epipe.
namespace epipe::model {

// A safetensors file, or a state dict from torch.save (.pth, .pt, .bin), told apart by their first bytes; or a Hugging Face folder
// (hf_folder.h).
Result<NamedTensors> read_weights(const std::string& path);

// The same, but the values of safetensors files are read on first access: they are views into `files` and must not be written to. A state
// dict is read into memory, and `files` is empty.
struct MappedWeights {
  NamedTensors tensors;
  std::vector<std::shared_ptr<MappedFile>> files;  // shared with the tensors
};
Result<MappedWeights> map_weights(const std::string& path);

enum class NewParts : std::uint8_t {
  kNone,         // the file must have every tensor of the model
  kHeadAndCodec  // the last layer and inserted codecs keep their initial values if the file has no matching tensor
};

// Loads a file's tensors into the model, all or nothing. The error lists missing and extra names and different shapes. Returns notes for
// the user, one sentence each: parts that start fresh, tensors that were ignored.
//
// Names are torchvision's or Hugging Face's. A Hugging Face model may come without its head, without its task's prefix
// ("roberta.", "transformer.", "model."), with parts for other tasks, and with tables that are computed anyway. BatchNorm's
// num_batches_tracked may be missing or of shape [1].
Result<std::vector<std::string>> load_weights(const Model& model, NamedTensors from, NewParts new_parts);

// The same for a model that is not built as a whole: returns the file's tensors under the model's names.
struct FittedWeights {
  NamedTensors tensors;
  std::vector<std::string> notes;
};
Result<FittedWeights> fit_weights(const Architecture& architecture, NamedTensors from, NewParts new_parts);

// The prefix of layers that were inserted around a cut.
inline constexpr std::string_view kCodecPrefix = "codec.";

}  // namespace epipe::model
