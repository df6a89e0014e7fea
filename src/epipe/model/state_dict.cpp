#include "epipe/model/state_dict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "epipe/model/pickle.h"
#include "epipe/model/safetensors_header.h"
#include "epipe/model/zip.h"

namespace epipe::model {
namespace {

using PickleKind = PickleValue::Kind;

constexpr std::uint64_t kMostValues = std::uint64_t{1} << 56;  // their bytes and strides fit 64 bits

struct StorageType {
  std::string_view name;
  torch::ScalarType dtype;
};
constexpr std::array kStorageTypes = {
    StorageType{"FloatStorage", torch::kFloat32}, StorageType{"DoubleStorage", torch::kFloat64},
    StorageType{"HalfStorage", torch::kHalf},     StorageType{"BFloat16Storage", torch::kBFloat16},
    StorageType{"LongStorage", torch::kInt64},    StorageType{"IntStorage", torch::kInt32},
    StorageType{"ShortStorage", torch::kInt16},   StorageType{"CharStorage", torch::kInt8},
    StorageType{"ByteStorage", torch::kUInt8},    StorageType{"BoolStorage", torch::kBool},
};

// The storages of an archive, each read once.
class Storages {
 public:
  Storages(const ZipArchive& archive, std::string folder) : archive_(archive), folder_(std::move(folder)) {}

  // All values of a storage as a flat tensor.
  Result<torch::Tensor> get(const PickleValue& storage) {
    const std::string key(storage.items[2]->text);
    const auto type =
        std::find_if(kStorageTypes.begin(), kStorageTypes.end(), [&](const auto& t) { return t.name == storage.items[1]->text; });
    if (type == kStorageTypes.end()) return bad_file(fmt::format("values of type {} are not known", in_quotes(storage.items[1]->text)));
    if (const auto found = read_.find(key); found != read_.end()) {
      if (found->second.scalar_type() != type->dtype) return bad_file(fmt::format("storage {} has two types", in_quotes(key)));
      return found->second;
    }
    auto values = copy(key, type->dtype);
    if (values) read_[key] = values.value();
    return values;
  }

 private:
  Result<torch::Tensor> copy(const std::string& key, torch::ScalarType dtype) const {
    const auto bytes = archive_.read(folder_ + "data/" + key);
    if (!bytes) return bytes.error();
    const std::size_t each = c10::elementSize(dtype);
    if (bytes.value().size() % each != 0) return bad_file(fmt::format("storage {} ends within a value", in_quotes(key)));
    const auto no_bool = [](std::byte b) { return b > std::byte{1}; };  // reading it would be undefined
    if (dtype == torch::kBool && std::any_of(bytes.value().begin(), bytes.value().end(), no_bool)) {
      return bad_file(fmt::format("expected only the bytes 0 and 1 in storage {}", in_quotes(key)));
    }
    auto values = torch::empty({static_cast<std::int64_t>(bytes.value().size() / each)}, dtype);
    if (!bytes.value().empty()) std::memcpy(values.data_ptr(), bytes.value().data(), bytes.value().size());
    return values;
  }

  const ZipArchive& archive_;
  std::string folder_;
  std::map<std::string, torch::Tensor> read_;
};

std::optional<std::vector<std::int64_t>> numbers(const PickleValue& tuple) {
  std::vector<std::int64_t> all;
  for (const PickleValue* item : tuple.items) {
    if (item->kind != PickleKind::kNumber || item->number < 0 || all.size() == kMaxDims) return std::nullopt;
    all.push_back(item->number);
  }
  return all;
}

// Values a view needs: one past its last one. nullopt on 64-bit overflow, or if the view repeats values.
std::optional<std::uint64_t> reach(std::int64_t offset, const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides) {
  std::optional<std::uint64_t> last = static_cast<std::uint64_t>(offset);
  std::optional<std::uint64_t> count = 1;
  for (const std::int64_t size : sizes) {  // beside a 0 they must fit as well: an empty tensor has strides, too
    if (count) count = checked_mul(*count, static_cast<std::uint64_t>(std::max<std::int64_t>(1, size)));
  }
  if (!count || *count > kMostValues) return std::nullopt;
  for (std::size_t i = 0; i < sizes.size() && last; ++i) {
    if (sizes[i] == 0) return 0;
    const auto step = checked_mul(static_cast<std::uint64_t>(sizes[i] - 1), static_cast<std::uint64_t>(strides[i]));
    last = step ? checked_add(*last, *step) : std::nullopt;
  }
  if (!last || *count > *last + 1) return std::nullopt;
  return *last + 1;
}

Result<torch::Tensor> make_tensor(const PickleValue& tensor, Storages& storages) {
  const auto sizes = numbers(*tensor.items[2]);
  const auto strides = numbers(*tensor.items[3]);
  const std::int64_t offset = tensor.items[1]->number;
  if (!sizes || !strides || sizes->size() != strides->size() || offset < 0)
    return bad_file("expected sizes, strides and an offset from 0 on");
  const auto storage = storages.get(*tensor.items[0]);
  if (!storage) return storage.error();
  const auto needed = reach(offset, *sizes, *strides);
  if (!needed || *needed > static_cast<std::uint64_t>(storage.value().numel())) {
    return bad_file(fmt::format("shape [{}] does not fit the {} values of its storage", fmt::join(*sizes, ", "), storage.value().numel()));
  }
  if (*needed == 0) return torch::empty(*sizes, storage.value().scalar_type());
  return storage.value().as_strided(*sizes, *strides, offset);
}

// The dict that holds the tensors: the top one, or the one under a usual name.
Result<const PickleValue*> find_tensors(const PickleValue& top) {
  if (top.kind != PickleKind::kDict) return bad_file("expected a state dict; save it with torch.save(model.state_dict(), FILE)");
  for (std::size_t i = 0; i + 1 < top.items.size(); i += 2) {
    const auto name = top.items[i]->text;
    if ((name == "state_dict" || name == "model") && top.items[i + 1]->kind == PickleKind::kDict) return top.items[i + 1];
  }
  return &top;
}

Result<void> check_byte_order(const ZipArchive& archive, const std::string& folder) {
  if (!archive.contains(folder + "byteorder")) return {};
  const auto order = archive.read(folder + "byteorder");
  if (!order) return order.error();
  const std::string_view text(reinterpret_cast<const char*>(order.value().data()), order.value().size());
  if (text != "little") return bad_file(fmt::format("expected little-endian values, got {}", in_quotes(text)));
  return {};
}

}  // namespace

Result<NamedTensors> parse_state_dict(ByteView bytes) {
  const auto archive = ZipArchive::parse(bytes);
  if (!archive) return archive.error();
  const auto folder = archive.value().folder_of("data.pkl");
  if (!folder) return folder.error();
  EPIPE_TRY(check_byte_order(archive.value(), folder.value()));
  const auto text = archive.value().read(folder.value() + "data.pkl");
  if (!text) return text.error();
  const auto pickle = parse_pickle(text.value());
  if (!pickle) return pickle.error();
  const auto dict = find_tensors(*pickle.value().top);
  if (!dict) return dict.error();

  Storages storages(archive.value(), folder.value());
  NamedTensors tensors;
  const auto& items = dict.value()->items;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i]->kind != PickleKind::kText || items[i + 1]->kind != PickleKind::kTensor) {
      return bad_file(fmt::format("expected only tensors in the state dict, but {} is not a tensor", in_quotes(items[i]->text)));
    }
    auto tensor = make_tensor(*items[i + 1], storages);
    if (!tensor) return bad_file(fmt::format("tensor {}: {}", in_quotes(items[i]->text), tensor.error().message));
    tensors[std::string(items[i]->text)] = std::move(tensor).value();
  }
  return tensors;
}

}  // namespace epipe::model
