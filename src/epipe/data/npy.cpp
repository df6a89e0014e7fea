#include "epipe/data/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>

#include "epipe/base/file.h"

namespace epipe::data {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::uint64_t kMaxNpyBytes = std::uint64_t{1} << 36;

// The text after 'key': in the header's dict, leading blanks removed. The dict is Python's, but NumPy writes only this much of it.
std::optional<std::string_view> dict_field(std::string_view dict, std::string_view key) {
  for (const char quote : {'\'', '"'}) {
    const std::string name = fmt::format("{0}{1}{0}", quote, key);
    const auto at = dict.find(name);
    if (at == std::string_view::npos) continue;
    std::string_view rest = dict.substr(at + name.size());
    const auto value = rest.find_first_not_of(" :");
    if (value != std::string_view::npos) return rest.substr(value);
  }
  return std::nullopt;
}

// "(4, 32,)" -> {4, 32}; nullopt for anything else.
std::optional<std::vector<std::int64_t>> parse_shape(std::string_view text) {
  if (!text.starts_with('(')) return std::nullopt;
  std::vector<std::int64_t> shape;
  const char* at = text.data() + 1;
  const char* const end = text.data() + text.size();
  while (true) {
    while (at < end && (*at == ' ' || *at == ',')) ++at;
    if (at == end) return std::nullopt;
    if (*at == ')') return shape;
    std::int64_t dim = -1;
    const auto [stop, status] = std::from_chars(at, end, dim);
    if (status != std::errc() || dim < 0) return std::nullopt;
    shape.push_back(dim);
    at = stop;
  }
}

constexpr std::size_t kMostDims = 32;  // NumPy's
constexpr std::uint64_t kMostValues = std::uint64_t{1} << 56;

struct Type {
  std::string_view name;
  torch::ScalarType type;
};
constexpr std::array kTypes = {
    Type{"<f4", torch::kFloat}, Type{"<f8", torch::kDouble}, Type{"|u1", torch::kByte}, Type{"|i1", torch::kChar},
    Type{"<i2", torch::kShort}, Type{"<i4", torch::kInt},    Type{"<i8", torch::kLong}, Type{"|b1", torch::kBool},
};

struct NpyLayout {
  torch::ScalarType type = torch::kFloat;
  std::vector<std::int64_t> shape;
  bool fortran_order = false;
};

Result<torch::ScalarType> parse_type(std::string_view name, bool any_type) {
  const auto* const found = std::find_if(kTypes.begin(), kTypes.end(), [&](const Type& type) { return type.name == name; });
  if (found != kTypes.end() && (any_type || found->type == torch::kFloat)) return found->type;
  if (!any_type) return bad_file(fmt::format("expected float32 values (<f4), got {}; convert with x.astype('float32')", name));
  return bad_file(fmt::format("expected float32, float64, bool or little-endian integers, got {}; convert with x.astype(...)", name));
}

Result<NpyLayout> parse_dict(std::string_view dict, bool any_type) {
  const auto descr = dict_field(dict, "descr");
  const auto order = dict_field(dict, "fortran_order");
  const auto shape_text = dict_field(dict, "shape");
  if (!descr || !order || !shape_text) return bad_file("expected descr, fortran_order and shape in the .npy header");
  const auto type = parse_type(descr->substr(1, descr->find_first_of("'\"", 1) - 1), any_type);
  if (!type) return type.error();
  auto shape = parse_shape(*shape_text);
  if (!shape) return bad_file("the shape in the .npy header is not a tuple of sizes");
  return NpyLayout{type.value(), std::move(*shape), order->starts_with("True")};
}

// An empty array has strides, too: the sizes beside a 0 must not overflow either.
std::optional<std::uint64_t> value_count(const std::vector<std::int64_t>& shape) {
  if (shape.size() > kMostDims) return std::nullopt;
  std::uint64_t count = 1;
  bool empty = false;
  for (const std::int64_t dim : shape) {
    empty = empty || dim == 0;
    const auto next = checked_mul(count, static_cast<std::uint64_t>(std::max<std::int64_t>(1, dim)));
    if (!next || *next > kMostValues) return std::nullopt;
    count = *next;
  }
  return empty ? 0 : count;
}

torch::Tensor copy_values(ByteView values, const NpyLayout& layout) {
  std::vector<std::int64_t> stored = layout.shape;
  if (layout.fortran_order) std::reverse(stored.begin(), stored.end());
  auto x = torch::empty(stored, layout.type);
  if (!values.empty()) std::memcpy(x.data_ptr(), values.data(), values.size());
  if (!layout.fortran_order) return x;
  std::vector<std::int64_t> reversed(stored.size());
  for (std::size_t i = 0; i < reversed.size(); ++i) reversed[i] = static_cast<std::int64_t>(reversed.size() - 1 - i);
  return x.permute(reversed).contiguous();
}

Result<torch::Tensor> parse(ByteView bytes, bool any_type) {
  ByteReader reader(bytes);
  const auto magic = reader.take_bytes(kMagic.size());
  if (!magic || std::memcmp(magic->data(), kMagic.data(), kMagic.size()) != 0)
    return bad_file("not a .npy file: expected it to start with \\x93NUMPY");
  const auto major = reader.take<std::uint8_t>();
  const auto minor = reader.take<std::uint8_t>();
  if (!minor || *major < 1 || *major > 3) return bad_file("expected .npy format version 1, 2 or 3");
  const std::optional<std::uint64_t> header_bytes =
      *major == 1 ? std::optional<std::uint64_t>(reader.take<std::uint16_t>()) : std::optional<std::uint64_t>(reader.take<std::uint32_t>());
  const auto header = header_bytes ? reader.take_bytes(*header_bytes) : std::nullopt;
  if (!header) return bad_file("the .npy header is cut off");
  const auto layout = parse_dict({reinterpret_cast<const char*>(header->data()), header->size()}, any_type);
  if (!layout) return layout.error();
  const auto count = value_count(layout.value().shape);
  const auto needed = count ? checked_mul(*count, c10::elementSize(layout.value().type)) : std::nullopt;
  if (!needed || *needed != reader.rest().size()) {
    return bad_file(fmt::format("shape ({}) does not fit the {} bytes of values in the file", fmt::join(layout.value().shape, ", "),
                                reader.rest().size()));
  }
  return copy_values(reader.rest(), layout.value());
}

Result<torch::Tensor> read(const std::string& path, bool any_type) {
  const auto bytes = read_file(path, kMaxNpyBytes);
  if (!bytes) return bytes.error();
  auto x = parse(bytes.value(), any_type);
  if (!x) return Error{x.error().code, fmt::format("{}: {}", path, x.error().message)};
  return x;
}

}  // namespace

Result<torch::Tensor> parse_npy(ByteView bytes) { return parse(bytes, false); }
Result<torch::Tensor> parse_npy_any(ByteView bytes) { return parse(bytes, true); }
Result<torch::Tensor> read_npy(const std::string& path) { return read(path, false); }
Result<torch::Tensor> read_npy_any(const std::string& path) { return read(path, true); }

Result<void> write_npy(const std::string& path, const torch::Tensor& x) {
  const auto dense = x.contiguous();
  std::string shape;
  for (const auto dim : dense.sizes()) shape += fmt::format("{}, ", dim);
  if (dense.dim() > 1) shape.resize(shape.size() - 2);
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", shape);
  constexpr std::size_t kPrefix = 10;
  header.append(63 - (kPrefix + header.size()) % 64, ' ').push_back('\n');
  std::string head(kMagic);
  head += {'\x01', '\x00', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  head += header;
  const ByteView values(reinterpret_cast<const std::byte*>(dense.data_ptr<float>()),
                        static_cast<std::size_t>(dense.numel()) * sizeof(float));
  return write_file(path, {std::as_bytes(std::span(head)), values});
}

}  // namespace epipe::data
