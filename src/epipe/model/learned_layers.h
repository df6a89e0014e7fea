#pragma once

#include <memory>
#include <string>
#include <vector>

#include "epipe/layer/layer.h"
#include "epipe/model/learned_codec.h"

namespace epipe::model {

// The layers of a learned codec: the one before the cut and the one after it.
struct CodecHalves {
  std::shared_ptr<layer::Layer> encode;
  std::shared_ptr<layer::Layer> decode;
};

// For a tensor of this shape, samples first: "NAME.encode", "NAME.decode". Throw std::invalid_argument if the codec does not fit it.
CodecHalves make_conv_codec(const std::string& name, const LearnedCodec& codec, const std::vector<std::int64_t>& shape);
CodecHalves make_linear_codec(const std::string& name, const LearnedCodec& codec, const std::vector<std::int64_t>& shape);

}  // namespace epipe::model
