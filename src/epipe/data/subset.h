#pragma once

#include "epipe/data/dataset.h"

namespace epipe::data {

// A share of the training and of the validation samples, 0 < share <= 1: the same ones for every seed, spread over the whole set, at least
// one of each. Samples keep their ids. Throws std::invalid_argument for any other share.
Splits part_of(Splits splits, double share);

}  // namespace epipe::data
