#include "epipe/data/cifar.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "epipe/base/file.h"
#include "epipe/data/image/image_dataset.h"
#include "epipe/data/sources.h"

namespace epipe::data {
namespace {

constexpr std::uint64_t kMaxCifarBytes = std::uint64_t{1} << 30;

// Where the two data sets differ.
struct CifarLayout {
  std::string name;
  std::string subfolder;  // in the official archive
  std::vector<std::string> train;
  std::string validation;
  std::size_t label_bytes;
  std::size_t classes;
  std::string advice;  // with {} for the folder
};

CifarLayout cifar10_layout() {
  std::vector<std::string> train;
  for (int i = 1; i <= 5; ++i) train.push_back(fmt::format("data_batch_{}.bin", i));
  return {"CIFAR-10", "cifar-10-batches-bin", train, "test_batch.bin", 1, 10, "run `epipe data cifar10 {}` to fetch it"};
}

CifarLayout cifar100_layout() {
  return {"CIFAR-100",
          "cifar-100-binary",
          {"train.bin"},
          "test.bin",
          2,
          100,
          "unpack https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz in {}"};
}

class CifarImages final : public ImageSource {
 public:
  CifarImages(CifarRecords records, std::size_t classes) : records_(std::move(records)), classes_(classes) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(records_.labels.size()); }
  std::int64_t classes() const override { return static_cast<std::int64_t>(classes_); }
  std::int64_t label(std::int64_t id) const override { return records_.labels[static_cast<std::size_t>(id)]; }
  Image load(std::int64_t id) const override {
    Image image(kCifarEdge, kCifarEdge);
    const std::size_t plane = kCifarPixels / 3;
    const std::uint8_t* const from = records_.pixels.data() + static_cast<std::size_t>(id) * kCifarPixels;
    for (std::size_t i = 0; i < plane; ++i) {
      for (std::size_t c = 0; c < 3; ++c) image.pixels[3 * i + c] = from[c * plane + i];
    }
    return image;
  }

 private:
  CifarRecords records_;
  std::size_t classes_;
};

// The folder itself or the official archive's folder in it.
std::string find_cifar_folder(const std::string& folder, const CifarLayout& layout) {
  std::vector<std::string> missing;
  for (const std::string& at : {folder, path_in(folder, layout.subfolder)}) {
    missing.clear();
    for (const std::string& file : layout.train) {
      if (!exists(path_in(at, file))) missing.push_back(file);
    }
    if (!exists(path_in(at, layout.validation))) missing.push_back(layout.validation);
    if (missing.empty()) return at;
    if (missing.size() <= layout.train.size()) break;  // some of them are here: say which are not
  }
  throw std::runtime_error(fmt::format("{} is not complete in {}: {} missing; {}", layout.name, folder, fmt::join(missing, ", "),
                                       fmt::format(fmt::runtime(layout.advice), folder)));
}

std::unique_ptr<ImageSource> read_cifar_split(const std::string& folder, const std::vector<std::string>& files, const CifarLayout& layout) {
  CifarRecords records;
  for (const std::string& file : files) {
    const std::string path = path_in(folder, file);
    const auto bytes = value_or_throw(read_file(path, kMaxCifarBytes));
    if (const auto added = append_cifar(bytes, layout.label_bytes, layout.classes, records); !added) {
      throw std::runtime_error(fmt::format("{}: {}", path, added.error().message));
    }
  }
  return std::make_unique<CifarImages>(std::move(records), layout.classes);
}

Splits open_layout(const CifarLayout& layout, const std::string& given, const DataConfig& config) {
  const auto recipes = choose_recipes(config.augment, true, config.image_size == 0 ? kCifarEdge : config.image_size);
  const std::string folder = find_cifar_folder(given, layout);
  return {make_image_dataset(read_cifar_split(folder, layout.train, layout), recipes.train),
          make_image_dataset(read_cifar_split(folder, {layout.validation}, layout), recipes.validation)};
}

}  // namespace

Result<void> append_cifar(ByteView bytes, std::size_t label_bytes, std::size_t classes, CifarRecords& out) {
  const std::size_t record = label_bytes + kCifarPixels;
  const std::size_t count = bytes.size() / record;
  if (bytes.size() % record != 0 || count == 0) {
    return Error{
        ErrorCode::kBadFile,
        fmt::format("expected whole records of {} bytes, got {} bytes; the file is truncated or of another kind", record, bytes.size())};
  }
  for (std::size_t i = 0; i < count; ++i) {
    const ByteView at = bytes.subspan(i * record, record);
    const auto label = static_cast<std::uint8_t>(at[label_bytes - 1]);
    if (label >= classes) return Error{ErrorCode::kBadFile, fmt::format("record {}: expected a label below {}, got {}", i, classes, label)};
    out.labels.push_back(label);
    const auto* const pixels = reinterpret_cast<const std::uint8_t*>(at.data()) + label_bytes;
    out.pixels.insert(out.pixels.end(), pixels, pixels + kCifarPixels);
  }
  return {};
}

Splits open_cifar10(const std::string& folder, const DataConfig& config) { return open_layout(cifar10_layout(), folder, config); }
Splits open_cifar100(const std::string& folder, const DataConfig& config) { return open_layout(cifar100_layout(), folder, config); }

}  // namespace epipe::data
