#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "epipe/data/dataset.h"

namespace epipe::data {

// Everything that says what the samples of a run look like; the names are those of the flags.
struct DataConfig {
  std::string spec = "synthetic";  // synthetic, cifar10:DIR, cifar100:DIR, food101:DIR, images:DIR, glue/TASK:DIR, npy:DIR, text:PATH
  std::int64_t image_size = 0;     // pixels; 0: CIFAR's 32, otherwise 224
  std::string augment = "auto";    // auto, none, crop or resized-crop
  std::int64_t max_length = 0;     // tokens, special ones included; 0: 128, of text:PATH 512
  std::string bpe;                 // folder of vocab.json and merges.txt; empty: roberta-bpe in DIR or a folder above it
  std::string tokenizer;           // folder of a tokenizer.json, for text:PATH and glue/TASK:DIR, where it stands in for `bpe`
  std::string cache_dir;           // where text:PATH keeps its tokens; empty: .epipe-cache beside the text, or the user's folder of caches
};

// The training and the validation samples. `synthetic_kind` and `seed` make the synthetic ones. Throws std::invalid_argument where the
// spec or a setting makes no sense, std::runtime_error that says what to do where data is missing or broken.
Splits open_data(const DataConfig& config, DataSpec::Kind synthetic_kind, std::uint64_t seed);

// "cifar10:DIR", ...: what a spec may be, for help and errors.
std::vector<std::string> data_specs();

// The data that a program knows: the above, and what it brings itself.
class Registry {
 public:
  using Open = std::function<Splits(const std::string& argument)>;

  // `--data NAME` or NAME:ARGUMENT. Throws std::invalid_argument where the name is taken or no name.
  void add(const std::string& name, Open open);
  // As open_data().
  Splits open(const DataConfig& config, DataSpec::Kind synthetic_kind, std::uint64_t seed) const;
  std::vector<std::string> specs() const;

 private:
  std::map<std::string, Open> own_;
};

}  // namespace epipe::data
