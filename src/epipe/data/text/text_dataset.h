#pragma once

#include <memory>
#include <vector>

#include "epipe/data/dataset.h"
#include "epipe/data/text/token_ids.h"
#include "epipe/data/text/tokenizer/post_processor.h"

namespace epipe::data {

// Sentences as token ids, one after the other.
struct Sentences {
  std::vector<std::int32_t> tokens;
  std::vector<std::size_t> ends;    // of each sentence in `tokens`
  std::vector<std::int32_t> types;  // of each token; empty: the model gets none
  std::vector<float> targets;       // the label or the value of each sentence

  void add(const TokenIds& sentence, float target);
  void add(const Encoding& sentence, float target);
};

// Batches of [B, T] ids padded with `pad`, and a mask [B, T] that is 1 at tokens; types, if there are any, are a second input [B, T], 0 at
// the padding. No sentence may be longer than spec.shape[0].
std::unique_ptr<Dataset> make_text_dataset(Sentences sentences, DataSpec spec, std::int32_t pad);

}  // namespace epipe::data
