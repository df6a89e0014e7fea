#include "epipe/pipeline/sample_tag.h"

#include "epipe/base/sha256.h"

namespace epipe::pipeline {
namespace {

void append_tensor(Bytes& out, const torch::Tensor& x) {
  append(out, static_cast<std::int64_t>(x.scalar_type()));
  append(out, x.dim());
  for (const std::int64_t size : x.sizes()) append(out, size);
  const torch::Tensor whole = x.detach().cpu().contiguous();
  append_bytes(out, {static_cast<const std::byte*>(whole.data_ptr()), whole.nbytes()});
}

}  // namespace

std::uint64_t sample_tag(const std::string& key, const layer::Batch& sample) {
  Bytes all;
  append_bytes(all, std::as_bytes(std::span(key)));
  for (const torch::Tensor& input : sample.inputs) append_tensor(all, input);
  for (const torch::Tensor& side : sample.side) append_tensor(all, side);
  return load<std::uint64_t>(sha256(all), 0);
}

}  // namespace epipe::pipeline
