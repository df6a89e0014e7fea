#pragma once

#include "epipe/data/open.h"
#include "epipe/model/registry.h"
#include "epipe/train/loss.h"

namespace epipe::train {

// The models, data and losses a program knows by name. Made once, at its start, and passed to everything that trains.
struct Registry {
  model::Registry models = model::builtin_models();
  data::Registry data{};
  Losses losses{};
};

}  // namespace epipe::train
