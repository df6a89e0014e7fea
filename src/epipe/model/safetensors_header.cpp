#include "epipe/model/safetensors_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

namespace epipe::model {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMetadata = "__metadata__";

struct Dtype {
  std::string_view name;
  torch::ScalarType type;
};
constexpr std::array<Dtype, 10> kDtypes = {{{"I64", torch::kInt64},
                                            {"F64", torch::kFloat64},
                                            {"F32", torch::kFloat32},
                                            {"I32", torch::kInt32},
                                            {"BF16", torch::kBFloat16},
                                            {"F16", torch::kFloat16},
                                            {"I16", torch::kInt16},
                                            {"I8", torch::kInt8},
                                            {"U8", torch::kUInt8},
                                            {"BOOL", torch::kBool}}};

std::optional<Dtype> dtype_named(std::string_view name) {
  const auto* const found = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& d) { return d.name == name; });
  return found == kDtypes.end() ? std::nullopt : std::optional(*found);
}

// One tensor's object in the header, unchecked.
struct TensorFields {
  std::optional<std::string> dtype;
  std::optional<std::vector<std::uint64_t>> shape;
  std::optional<std::vector<std::uint64_t>> offsets;
};

// Bytes of a tensor; nullopt if they, or the strides of an empty tensor, do not fit in 63 bits.
std::optional<std::uint64_t> byte_count(const std::vector<std::uint64_t>& shape, std::uint64_t value_bytes) {
  std::optional<std::uint64_t> extent = value_bytes;
  bool empty = false;
  for (const std::uint64_t dim : shape) {
    empty = empty || dim == 0;
    if (extent) extent = checked_mul(*extent, std::max<std::uint64_t>(dim, 1));
  }
  if (!extent || *extent > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
  return empty ? 0 : *extent;
}

Result<TensorEntry> check_entry(std::string name, const TensorFields& fields, std::uint64_t data_bytes) {
  const std::string shown = in_quotes(name);
  if (!fields.dtype || !fields.shape || !fields.offsets) {
    return bad_file(fmt::format("expected dtype, shape and data_offsets for tensor {}, got no {}", shown,
                                !fields.dtype ? "dtype" : (!fields.shape ? "shape" : "data_offsets")));
  }
  const auto dtype = dtype_named(*fields.dtype);
  if (!dtype) {
    return bad_file(fmt::format("tensor {} has the unknown dtype {}; expected one of I64 F64 F32 I32 BF16 F16 I16 I8 U8 BOOL", shown,
                                in_quotes(*fields.dtype)));
  }
  const auto& shape = *fields.shape;
  const auto needed = byte_count(shape, c10::elementSize(dtype->type));
  if (!needed) return bad_file(fmt::format("the shape [{}] of tensor {} overflows 63 bits", fmt::join(shape, ", "), shown));
  const auto& offsets = *fields.offsets;
  if (offsets.size() != 2) return bad_file(fmt::format("expected 2 data_offsets for tensor {}, got {}", shown, offsets.size()));
  const std::uint64_t begin = offsets[0];
  const std::uint64_t end = offsets[1];
  if (begin > end) return bad_file(fmt::format("the data_offsets of tensor {} end at {}, before they begin at {}", shown, end, begin));
  if (end - begin != *needed) {
    return bad_file(fmt::format("expected {} bytes for tensor {} of shape [{}] and dtype {}, got data_offsets of {} bytes", *needed, shown,
                                fmt::join(shape, ", "), dtype->name, end - begin));
  }
  if (end > data_bytes) {
    return Error{ErrorCode::kTruncated,
                 fmt::format("tensor {} ends at byte {} of the data, but the file has only {}", shown, end, data_bytes)};
  }
  return TensorEntry{std::move(name), dtype->type, {shape.begin(), shape.end()}, begin, end};
}

Result<void> check_coverage(const std::vector<TensorEntry>& sorted, std::uint64_t data_bytes) {
  std::uint64_t covered = 0;
  for (const TensorEntry& entry : sorted) {
    if (entry.begin > covered) {
      return bad_file(fmt::format("a hole in the data: no tensor covers bytes {} to {}, before tensor {}", covered, entry.begin,
                                  in_quotes(entry.name)));
    }
    if (entry.begin < covered) {
      return bad_file(fmt::format("tensor {} overlaps the one before it: expected it to begin at byte {}, got {}", in_quotes(entry.name),
                                  covered, entry.begin));
    }
    covered = entry.end;
  }
  if (covered != data_bytes) return bad_file(fmt::format("{} bytes behind the last tensor; expected none", data_bytes - covered));
  return {};
}

// Reads the header as a stream of JSON events, so that no tree is built and nesting is refused where it begins. `depth_` counts open
// brackets: 1 in the header, 2 in a tensor or the metadata, 3 in a tensor's shape or data_offsets.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(std::uint64_t data_bytes) : data_bytes_(data_bytes) {}

  const std::optional<Error>& error() const { return error_; }
  SafeTensorsHeader take() { return std::move(header_); }

  bool null() override { return unexpected("null"); }
  bool boolean(bool /*value*/) override { return unexpected("true or false"); }
  bool number_integer(number_integer_t /*value*/) override { return unexpected("a negative number"); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return unexpected("a fraction or too large a number"); }
  bool binary(binary_t& /*value*/) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ != 3) return unexpected("a number");
    if (numbers_->size() == kMaxDims) return fail(fmt::format("more than {} numbers in {}", kMaxDims, where()));
    numbers_->push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (depth_ == 2 && in_metadata_) {
      header_.metadata[key_] = std::move(value);
    } else if (depth_ == 2 && key_ == "dtype") {
      fields_.dtype = std::move(value);
    } else {
      return unexpected("a string");
    }
    return true;
  }

  bool start_object(std::size_t /*size*/) override {
    if (depth_ > 1) return unexpected("an object");
    ++depth_;
    return true;
  }

  bool start_array(std::size_t /*size*/) override {
    if (depth_ != 2 || in_metadata_ || key_ == "dtype") return unexpected("an array");
    numbers_ = &(key_ == "shape" ? fields_.shape : fields_.offsets).emplace();
    ++depth_;
    return true;
  }

  bool end_array() override {
    --depth_;
    return true;
  }

  bool end_object() override {
    --depth_;
    if (depth_ != 1 || in_metadata_) return true;
    auto entry = check_entry(std::move(name_), std::exchange(fields_, {}), data_bytes_);
    if (!entry) return fail(entry.error());
    header_.tensors.push_back(std::move(entry).value());
    return true;
  }

  bool key(string_t& value) override {
    if (depth_ == 1) {
      if (!names_.insert(value).second) return fail(fmt::format("the header names {} twice", in_quotes(value)));
      in_metadata_ = value == kMetadata;
      name_ = std::move(value);
      return true;
    }
    const bool tensor_field = value == "dtype" || value == "shape" || value == "data_offsets";
    if (!in_metadata_ && !tensor_field) return fail(fmt::format("unknown field {} of tensor {}", in_quotes(value), in_quotes(name_)));
    key_ = std::move(value);
    if (given()) return fail(fmt::format("{} is given twice", where()));
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/, const nlohmann::detail::exception& reason) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: REASON; last read: 'as much as the header holds'"
    std::string_view text = reason.what();
    text = text.substr(0, text.find("; last read"));
    text.remove_prefix(std::min(text.size(), text.find("] ") + 2));
    return fail(fmt::format("the header is not valid JSON in UTF-8, byte {}: {}", position, text.substr(0, 200)));
  }

 private:
  // Describes the reader's position.
  std::string where() const {
    if (depth_ == 0) return "the header";
    if (depth_ == 1) return in_metadata_ ? std::string(kMetadata) : fmt::format("tensor {}", in_quotes(name_));
    return fmt::format("{} of {}", in_metadata_ ? in_quotes(key_) : key_,
                       in_metadata_ ? std::string(kMetadata) : "tensor " + in_quotes(name_));
  }
  // Whether the value of the key at depth 2 was given before.
  bool given() const {
    if (in_metadata_) return header_.metadata.contains(key_);
    return key_ == "dtype" ? fields_.dtype.has_value() : (key_ == "shape" ? fields_.shape : fields_.offsets).has_value();
  }
  std::string_view wanted() const {
    if (depth_ < 2) return "an object";
    if (depth_ == 3) return "whole numbers";
    return in_metadata_ || key_ == "dtype" ? "a string" : "an array";
  }
  bool unexpected(std::string_view got) { return fail(fmt::format("expected {} for {}, got {}", wanted(), where(), got)); }
  bool fail(std::string message) { return fail(bad_file(std::move(message))); }
  bool fail(Error error) {
    error_ = std::move(error);
    return false;
  }

  std::uint64_t data_bytes_;
  std::optional<Error> error_;
  SafeTensorsHeader header_;
  std::set<std::string> names_;

  int depth_ = 0;
  bool in_metadata_ = false;
  std::string name_;                               // the last key at depth 1
  std::string key_;                                // the last key at depth 2
  TensorFields fields_;                            // the tensor being read
  std::vector<std::uint64_t>* numbers_ = nullptr;  // at depth 3: the field of fields_ that is being filled
};

std::string format_entry(const TensorEntry& entry) {
  return fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", Json(entry.name).dump(),
                     kDtypes.at(dtype_order(entry.dtype).value()).name, fmt::join(entry.shape, ","), entry.begin, entry.end);
}

}  // namespace

std::optional<std::size_t> dtype_order(torch::ScalarType dtype) {
  const auto* const found = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& d) { return d.type == dtype; });
  if (found == kDtypes.end()) return std::nullopt;
  return static_cast<std::size_t>(found - kDtypes.begin());
}

Result<SafeTensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes) {
  if (!json.starts_with('{')) return bad_file("expected the header to begin with {");
  // The parser would take a zero as the end of its input and ignore the rest.
  if (const auto zero = json.find('\0'); zero != std::string_view::npos) {
    return bad_file(fmt::format("the header is not valid JSON in UTF-8, byte {}: a zero", zero + 1));
  }
  HeaderReader reader(data_bytes);
  Json::sax_parse(json.begin(), json.end(), &reader);
  if (reader.error()) return *reader.error();
  SafeTensorsHeader header = reader.take();
  const auto place = [](const TensorEntry& entry) { return std::tie(entry.begin, entry.end); };
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  EPIPE_TRY(check_coverage(header.tensors, data_bytes));
  return header;
}

Result<std::string> format_safetensors_header(const SafeTensorsHeader& header) {
  std::vector<std::string> members;
  try {
    if (!header.metadata.empty()) members.push_back(fmt::format("\"{}\":{}", kMetadata, Json(header.metadata).dump()));
    for (const TensorEntry& entry : header.tensors) members.push_back(format_entry(entry));
  } catch (const Json::type_error&) {
    return bad_file("expected names and metadata in UTF-8");
  }
  std::string text = fmt::format("{{{}}}", fmt::join(members, ","));
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kMaxHeaderBytes) {
    return Error{ErrorCode::kTooLarge, fmt::format("names, shapes and metadata take {} bytes; at most {} fit in a safetensors header",
                                                   text.size(), kMaxHeaderBytes)};
  }
  return text;
}

}  // namespace epipe::model
