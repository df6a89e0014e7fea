#pragma once

#include <cstdint>
#include <string>

#include "epipe/layer/batch.h"

namespace epipe::pipeline {

// Identifies what a sample's activations are computed from: its inputs and side inputs, keyed with a secret of the client, so that the tag
// reveals nothing about them to others. `sample`: a batch of one.
std::uint64_t sample_tag(const std::string& key, const layer::Batch& sample);

}  // namespace epipe::pipeline
