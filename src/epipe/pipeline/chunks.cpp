#include "epipe/pipeline/chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace epipe::pipeline {

std::vector<Chunk> split(std::int64_t samples, int chunks) {
  if (chunks < 1 || chunks > samples) {
    throw std::invalid_argument(
        fmt::format("a batch of {} samples cannot be split into {} micro-batches; use 1 to {}", samples, chunks, samples));
  }
  std::vector<Chunk> all;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < chunks; ++i) {
    const std::int64_t size = samples / chunks + (i < samples % chunks ? 1 : 0);
    all.push_back({begin, size});
    begin += size;
  }
  return all;
}

layer::Batch slice(const layer::Batch& batch, const Chunk& chunk) {
  layer::Batch part;
  for (const auto& x : batch.inputs) part.inputs.push_back(x.narrow(0, chunk.begin, chunk.size));
  for (const auto& x : batch.side) part.side.push_back(x.narrow(0, chunk.begin, chunk.size));
  if (batch.targets.defined()) part.targets = batch.targets.narrow(0, chunk.begin, chunk.size);
  const auto first = batch.samples.begin() + chunk.begin;
  part.samples.assign(first, first + chunk.size);
  return part;
}

}  // namespace epipe::pipeline
