#include "epipe/model/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "epipe/base/file.h"
#include "epipe/model/safetensors_header.h"

namespace epipe::model {
namespace {

constexpr std::uint64_t kMaxSafetensorsBytes = std::uint64_t{1} << 36;

Result<torch::Tensor> copy_values(const TensorEntry& entry, ByteView values) {
  // Any other byte is not a bool: reading it would be undefined behaviour.
  const auto no_bool = [](std::byte b) { return b > std::byte{1}; };
  if (entry.dtype == torch::kBool && std::any_of(values.begin(), values.end(), no_bool)) {
    return bad_file(fmt::format("expected only the bytes 0 and 1 in tensor {} of dtype BOOL", in_quotes(entry.name)));
  }
  auto x = torch::empty(entry.shape, entry.dtype);
  if (!values.empty()) std::memcpy(x.data_ptr(), values.data(), values.size());
  return x;
}

}  // namespace

Result<torch::Tensor> dense_for_file(const std::string& name, const torch::Tensor& x) {
  if (name == "__metadata__") return bad_file("a tensor cannot be named __metadata__: safetensors keeps texts there");
  if (!x.defined() || x.layout() != torch::kStrided) return bad_file(fmt::format("expected tensor {} to be dense", in_quotes(name)));
  if (!dtype_order(x.scalar_type())) {
    return bad_file(fmt::format("safetensors has no dtype for {}, which tensor {} holds", c10::toString(x.scalar_type()), in_quotes(name)));
  }
  if (static_cast<std::size_t>(x.dim()) > kMaxDims) {
    return bad_file(fmt::format("expected at most {} dimensions, got {} in tensor {}", kMaxDims, x.dim(), in_quotes(name)));
  }
  return x.detach().to(torch::kCPU).contiguous();
}

ByteView dense_bytes(const torch::Tensor& x) { return {static_cast<const std::byte*>(x.data_ptr()), x.nbytes()}; }

namespace {

// `take` makes a tensor of an entry and its bytes.
template <typename Take>
Result<SafeTensors> parse_with(ByteView bytes, const Take& take) {
  ByteReader reader(bytes);
  const auto header_bytes = reader.take<std::uint64_t>();
  if (!header_bytes) return Error{ErrorCode::kTruncated, fmt::format("expected 8 bytes of header length, got {}", bytes.size())};
  if (*header_bytes > kMaxHeaderBytes) {
    return Error{ErrorCode::kTooLarge,
                 fmt::format("expected a header of at most {} bytes, got {}; is this safetensors?", kMaxHeaderBytes, *header_bytes)};
  }
  const auto json = reader.take_bytes(*header_bytes);
  if (!json) {
    return Error{ErrorCode::kTruncated,
                 fmt::format("expected a header of {} bytes, but only {} follow its length", *header_bytes, reader.rest().size())};
  }
  const ByteView data = reader.rest();
  auto header = parse_safetensors_header({reinterpret_cast<const char*>(json->data()), json->size()}, data.size());
  if (!header) return header.error();
  SafeTensors file{{}, std::move(header.value().metadata)};
  for (const TensorEntry& entry : header.value().tensors) {
    auto x = take(entry, data.subspan(entry.begin, entry.end - entry.begin));
    if (!x) return x.error();
    file.tensors[entry.name] = std::move(x).value();
  }
  return file;
}

}  // namespace

Result<SafeTensors> parse_safetensors(ByteView bytes) { return parse_with(bytes, copy_values); }

Result<SafeTensors> parse_safetensors(const std::shared_ptr<MappedFile>& file) {
  return parse_with(file->bytes(), [&](const TensorEntry& entry, ByteView values) -> Result<torch::Tensor> {
    const bool aligned = reinterpret_cast<std::uintptr_t>(values.data()) % c10::elementSize(entry.dtype) == 0;
    if (!aligned || values.empty() || entry.dtype == torch::kBool) return copy_values(entry, values);
    return torch::from_blob(
        const_cast<std::byte*>(values.data()), entry.shape, [file](void*) {}, entry.dtype);
  });
}

Result<Bytes> serialize_safetensors(const NamedTensors& tensors, const Metadata& metadata) {
  std::vector<std::pair<std::string, torch::Tensor>> ordered;
  for (const auto& [name, x] : tensors) {
    auto values = dense_for_file(name, x);
    if (!values) return values.error();
    ordered.emplace_back(name, std::move(values).value());
  }
  const auto order = [](const auto& item) { return dtype_order(item.second.scalar_type()); };
  std::stable_sort(ordered.begin(), ordered.end(), [&](const auto& a, const auto& b) { return order(a) < order(b); });

  SafeTensorsHeader header{{}, metadata};
  std::uint64_t end = 0;
  for (const auto& [name, x] : ordered) {
    const std::uint64_t begin = std::exchange(end, end + x.nbytes());
    header.tensors.push_back({name, x.scalar_type(), x.sizes().vec(), begin, end});
  }
  const auto json = format_safetensors_header(header);
  if (!json) return json.error();

  Bytes out;
  out.reserve(sizeof(std::uint64_t) + json.value().size() + end);
  append(out, static_cast<std::uint64_t>(json.value().size()));
  const ByteView text = std::as_bytes(std::span(json.value()));
  out.insert(out.end(), text.begin(), text.end());
  for (const auto& [name, x] : ordered) out.insert(out.end(), dense_bytes(x).begin(), dense_bytes(x).end());
  return out;
}

Result<SafeTensors> read_safetensors(const std::string& path) {
  const auto bytes = read_file(path, kMaxSafetensorsBytes);
  if (!bytes) return bytes.error();
  auto file = parse_safetensors(bytes.value());
  if (!file) return Error{file.error().code, fmt::format("{}: {}", path, file.error().message)};
  return file;
}

Result<void> write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  const auto bytes = serialize_safetensors(tensors, metadata);
  if (!bytes) return Error{bytes.error().code, fmt::format("{}: {}", path, bytes.error().message)};
  return write_private_file(path, {bytes.value()});
}

}  // namespace epipe::model
