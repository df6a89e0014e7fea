#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "epipe/data/dataset.h"

namespace epipe::data {

// All settings that determine the samples of a run, named like the flags.
struct DataConfig {
  std::string spec = "synthetic";  // synthetic, cifar10:DIR, cifar100:DIR, food101:DIR, images:DIR, glue/TASK:DIR, npy:DIR, text:PATH
  std::int64_t image_size = 0;     // pixels; 0: CIFAR's 32, otherwise 224
  std::string augment = "auto";    // auto, none, crop or resized-crop
  std::int64_t max_length = 0;     // tokens, special ones included; 0: 128, for text:PATH 512
  std::string bpe;                 // folder of vocab.json and merges.txt; empty: roberta-bpe in DIR or a folder above it
  std::string tokenizer;           // folder of a tokenizer.json, for text:PATH and glue/TASK:DIR, where it replaces `bpe`
  std::string cache_dir;           // where text:PATH caches its tokens; empty: .epipe-cache beside the text, or the user's cache folder
};

// The training and the validation samples. `synthetic_kind` and `seed` are for synthetic data. Throws std::invalid_argument if the spec or
// a setting is invalid, and std::runtime_error that says what to do if data is missing or damaged.
Splits open_data(const DataConfig& config, DataSpec::Kind synthetic_kind, std::uint64_t seed);

// "cifar10:DIR", ...: the known specs, for help and errors.
std::vector<std::string> data_specs();

// The data a program knows: the kinds above, and its own.
class Registry {
 public:
  using Open = std::function<Splits(const std::string& argument)>;

  // For `--data NAME` or NAME:ARGUMENT. Throws std::invalid_argument if the name is taken or invalid.
  void add(const std::string& name, Open open);
  // Like open_data().
  Splits open(const DataConfig& config, DataSpec::Kind synthetic_kind, std::uint64_t seed) const;
  std::vector<std::string> specs() const;

 private:
  std::map<std::string, Open> own_;
};

}  // namespace epipe::data
