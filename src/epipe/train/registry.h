#pragma once

#include "epipe/model/registry.h"

namespace epipe::train {

// What a program knows by name. Made once, at its start; whoever trains is given it.
struct Registry {
  model::Registry models = model::builtin_models();
};

}  // namespace epipe::train
