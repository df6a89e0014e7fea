#pragma once

#include <string>
#include <vector>

#include "epipe/base/result.h"
#include "epipe/model/model.h"

// Weights files of torchvision, Hugging Face and epipe.
namespace epipe::model {

// A safetensors file, or a state dict by torch.save (.pth, .pt, .bin); which one is seen from its first bytes.
Result<NamedTensors> read_weights(const std::string& path);

enum class NewParts : std::uint8_t {
  kNone,         // every tensor of the model comes from the file
  kHeadAndCodec  // the last layer and inserted codecs keep their first values where the file has no tensor that fits
};

// Puts a file's tensors into the model, all or nothing. An error lists names that are missing, extra or of another shape. Returns what its
// user should know, one sentence each: parts that start fresh, tensors that were ignored.
//
// Names are torchvision's or Hugging Face's. A RoBERTa may come without its head, without the prefix "roberta.", or with parts for other
// tasks. BatchNorm's num_batches_tracked may be missing or of shape [1].
Result<std::vector<std::string>> load_weights(const Model& model, NamedTensors from, NewParts new_parts);

// Layers whose name begins so were inserted around a cut.
inline constexpr std::string_view kCodecPrefix = "codec.";

}  // namespace epipe::model
