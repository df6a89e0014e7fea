#pragma once

#include <cstdint>
#include <vector>

#include "epipe/layer/batch.h"

namespace epipe::pipeline {

// A part of a batch, from sample `begin` on.
struct Chunk {
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

// As equal as possible; the first `samples mod chunks` get one sample more. Throws std::invalid_argument if there are more chunks than
// samples.
std::vector<Chunk> split(std::int64_t samples, int chunks);

// The micro-batch: views, no copies.
layer::Batch slice(const layer::Batch& batch, const Chunk& chunk);

}  // namespace epipe::pipeline
