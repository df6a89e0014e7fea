#pragma once

#include "epipe/model/model.h"

// One function per architecture, each in a file of its own. To add one: write the file, name it here and in registry.cpp.
namespace epipe::model {

using Layers = std::vector<std::shared_ptr<layer::Layer>>;

Layers make_mlp(const data::DataSpec& data);
Layers make_cnn(const data::DataSpec& data);
Layers make_transformer(const data::DataSpec& data);

}  // namespace epipe::model
