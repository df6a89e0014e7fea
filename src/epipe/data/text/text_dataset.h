#pragma once

#include <memory>
#include <vector>

#include "epipe/data/dataset.h"
#include "epipe/data/text/bpe.h"

namespace epipe::data {

// Sentences as token ids, one after the other.
struct Sentences {
  std::vector<std::int32_t> tokens;
  std::vector<std::size_t> ends;  // of each sentence in `tokens`
  std::vector<float> targets;     // the label or the value of each

  void add(const TokenIds& sentence, float target);
};

// Batches of [B, T] ids filled up with `pad`, and a mask [B, T] that is 1 where a token is. No sentence is longer than spec.shape[0].
std::unique_ptr<Dataset> make_text_dataset(Sentences sentences, DataSpec spec, std::int32_t pad);

}  // namespace epipe::data
