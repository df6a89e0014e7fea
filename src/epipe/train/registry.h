#pragma once

#include "epipe/data/open.h"
#include "epipe/model/registry.h"
#include "epipe/train/loss.h"

namespace epipe::train {

// What a program knows by name. Made once, at its start; whoever trains is given it.
struct Registry {
  model::Registry models = model::builtin_models();
  data::Registry data{};
  Losses losses{};
};

}  // namespace epipe::train
