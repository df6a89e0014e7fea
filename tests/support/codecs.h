#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "epipe/codec/codec.h"
#include "epipe/codec/frame_codec.h"
#include "support/tensors.h"

namespace epipe::testing {

// Every codec and a few chains; what all codecs promise is tested on each.
inline std::vector<std::string> every_spec() {
  return {"none",
          "fp16",
          "bf16",
          "uniform:1",
          "uniform:3",
          "uniform:8",
          "uniform:11",
          "uniform:16",
          "sort:1+0",
          "sort:3+1",
          "sort:6+2",
          "sort:9+3",
          "sort:12+4",
          "sort:1+15",
          "fast:6+2",
          "fast:2+6",
          "kmeans:1",
          "kmeans:4",
          "kmeans:9",
          "topk:0.1",
          "topk:0.01",
          "topk:1",
          "lowrank:2",
          "lowrank:3>fp16",
          "power:2",
          "power:2>uniform:8",
          "topk:0.1>uniform:8",
          "topk:0.5>kmeans:3",
          "power:1>topk:0.5>sort:3+1",
          "ec:4",
          "ec:0.5",
          "ec@0.01",
          "dct:1",
          "dct:0.25",
          "dct@0.001",
          "auto:2",
          "auto@0.05",
          "topk:0.1>ec:2",
          "power:4>ec:4"};
}

inline std::string hex(ByteView bytes) {
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

inline torch::Tensor tensor_of(const std::vector<float>& values) { return torch::tensor(values, torch::kFloat32); }

inline std::unique_ptr<codec::Codec> codec_of(const std::string& spec, const codec::CodecOptions& options = {}) {
  auto codec = codec::make_codec(spec, options);
  if (!codec) throw std::runtime_error(codec.error().text());
  return std::move(codec).value();
}

inline Bytes payload_of(codec::Codec& codec, const torch::Tensor& x) {
  Bytes out;
  const auto result = codec.encode(x, {}, out);
  if (!result) throw std::runtime_error(result.error().text());
  return out;
}

inline torch::Tensor decoded(const codec::Codec& codec, ByteView payload, torch::IntArrayRef shape) {
  auto y = torch::full(shape, 12345.0F);
  const auto result = codec.decode_into(y, payload);
  if (!result) throw std::runtime_error(result.error().text());
  return y;
}

inline torch::Tensor round_trip(const std::string& spec, const torch::Tensor& x) {
  const auto codec = codec_of(spec);
  return decoded(*codec, payload_of(*codec, x), x.sizes());
}

}  // namespace epipe::testing
