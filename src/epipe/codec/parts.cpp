#include "epipe/codec/parts.h"

#include <fmt/format.h>

#include "epipe/codec/cuda/device_codec.h"
#include "epipe/codec/span.h"

namespace epipe::codec {

Parts::Parts(std::size_t count, const InnerFactory& inner) {
  for (std::size_t i = 0; i < count; ++i) inner_.push_back(inner());
}

PayloadBounds Parts::payload_bounds(const std::vector<TensorSpec>& shapes) const {
  PayloadBounds all;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const auto bounds = inner_[i]->payload_bounds(shapes[i]);
    all.min += sizeof(std::uint64_t) + bounds.min;
    all.max += sizeof(std::uint64_t) + bounds.max;
  }
  return all;
}

Result<void> Parts::encode(const std::vector<torch::Tensor>& parts, const EncodeContext& at, Bytes& out) {
  const State before = state();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t length_at = out.size();
    append(out, std::uint64_t{0});
    if (auto encoded = inner_[i]->encode(parts[i], at, out); !encoded) {
      set_state(before);  // the parts before this one have gone on
      return encoded;
    }
    store(MutableBytes(out), length_at, static_cast<std::uint64_t>(out.size() - length_at - sizeof(std::uint64_t)));
  }
  return {};
}

Result<std::vector<torch::Tensor>> Parts::decode(const std::vector<TensorSpec>& shapes, ByteView in) const {
  std::vector<torch::Tensor> parts;
  ByteReader reader(in);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const auto length = reader.take<std::uint64_t>();
    const auto payload = length ? reader.take_bytes(*length) : std::nullopt;
    if (!payload) return Error{ErrorCode::kBadPayload, fmt::format("part {} of {} does not fit the payload", i, shapes.size())};
    const auto bounds = inner_[i]->payload_bounds(shapes[i]);
    if (payload->size() < bounds.min || payload->size() > bounds.max) return wrong_length(inner_[i]->spec(), bounds, payload->size());
    const std::vector<std::int64_t> sizes(shapes[i].dims.begin(), shapes[i].dims.end());
    auto part = torch::empty(sizes);
    EPIPE_TRY(inner_[i]->decode_into(part, *payload));
    parts.push_back(std::move(part));
  }
  if (!reader.rest().empty()) {
    return Error{ErrorCode::kBadPayload, fmt::format("{} bytes follow the last part", reader.rest().size())};
  }
  return parts;
}

std::string Parts::suffix() const {
  const std::string spec = inner_.front()->spec();
  return spec == "none" ? "" : ">" + spec;
}

std::vector<std::unique_ptr<DeviceCodec>> Parts::device_codecs() const {
  std::vector<std::unique_ptr<DeviceCodec>> all;
  for (const auto& codec : inner_) all.push_back(codec->device_codec());
  return all;
}

}  // namespace epipe::codec
