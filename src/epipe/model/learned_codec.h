#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epipe/model/architecture.h"

// Codecs that are trained with the model: layers on both sides of a cut, so that less crosses it. Gradients shrink in the same way.
//
//   conv:20x3      convolution to 20 channels, kernel = stride = 3, and the transposed one after the cut; maps [B, C, H, W]
//   conv:32x4,16   a second set within the first: to 16 channels (kernel 1; 16x2 for another)
//   linear:50      [.., F] -> [.., 50] -> [.., F]; starts as the identity on the first 50 features
//   linear:64,axis=s                  the same over the tokens of [B, S, F]
//   linear:768,decay=0.83/500/2500    rank = int(rank * 0.83) after every 500 training batches, until 2500
namespace epipe::model {

struct LearnedCodec {
  struct Set {
    std::int64_t channels = 1;
    std::int64_t kernel = 1;
  };
  std::vector<Set> sets{};       // conv: outermost first; empty: linear
  std::int64_t rank = 0;         // linear
  bool over_tokens = false;      // linear: axis=s
  double decay = 1;              // linear: factor
  std::int64_t decay_every = 0;  // training batches; 0: never
  std::int64_t decay_until = 0;
};

// Splits a cut's codec text, e.g. "conv:20x3>uniform:8", into the learned part, if it begins with one, and the rest of the chain for the
// wire ("none" if nothing is left). Throws std::invalid_argument for an invalid learned part.
struct SplitSpec {
  std::optional<LearnedCodec> learned{};
  std::string learned_text{};
  std::string wire;
};
SplitSpec split_learned(std::string_view spec);

// Inserts the two halves at layer `cut`, one on each side of the cut: layers "codec.NAME.encode" and "codec.NAME.decode", where NAME is
// the layer that begins there. `shape` is the shape of the one tensor that crosses, samples first. Returns the new index of the cut.
// Throws std::invalid_argument if the codec does not fit the shape.
std::size_t insert_learned_codec(Architecture& architecture, std::size_t cut, const LearnedCodec& codec,
                                 const std::vector<std::int64_t>& shape);

}  // namespace epipe::model
