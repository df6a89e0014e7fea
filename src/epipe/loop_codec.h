#pragma once

#include <stdexcept>
#include <string>

#include "epipe/model/learned_codec.h"

namespace epipe {

// The codec of a cut in a user's own training loop. Only `epipe train` can repeat a batch to choose the rate of "auto"; a loop gets 2 bits.
// Throws std::invalid_argument for a learned codec and says `instead`.
inline std::string loop_codec(const std::string& spec, const char* instead) {
  if (model::split_learned(spec).learned) throw std::invalid_argument(spec + instead);
  return spec == "auto" ? "auto:2" : spec;
}

}  // namespace epipe
