#pragma once

#include <cstdint>
#include <string>

#include "epipe/layer/batch.h"

namespace epipe::pipeline {

// Names what a sample's activations are computed from: its inputs and side inputs, under a key that only the client has, so that the tag
// tells nobody else anything about them. `sample`: a batch of one.
std::uint64_t sample_tag(const std::string& key, const layer::Batch& sample);

}  // namespace epipe::pipeline
