// Images in files: Food-101's own layout, and ImageNet's, a folder per class.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "epipe/base/file.h"
#include "epipe/data/image/image_dataset.h"
#include "epipe/data/sources.h"
#include "epipe/layer/random.h"

namespace epipe::data {
namespace {

constexpr std::int64_t kDefaultSize = 224;
constexpr std::uint64_t kMaxListBytes = std::uint64_t{1} << 28;

struct Item {
  std::string path;
  std::int64_t label;
};

// Reads files when a batch needs them.
class ImageFiles final : public ImageSource {
 public:
  ImageFiles(std::vector<Item> items, std::size_t classes) : items_(std::move(items)), classes_(classes) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(items_.size()); }
  std::int64_t classes() const override { return static_cast<std::int64_t>(classes_); }
  std::int64_t label(std::int64_t id) const override { return items_[static_cast<std::size_t>(id)].label; }
  Image load(std::int64_t id) const override { return value_or_throw(read_image(items_[static_cast<std::size_t>(id)].path)); }

 private:
  std::vector<Item> items_;
  std::size_t classes_;
};

using Labels = std::map<std::string, std::int64_t>;  // by class name

// Classes are numbered in the order of their names.
Labels number(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  Labels labels;
  for (const std::string& name : names) labels.emplace(name, static_cast<std::int64_t>(labels.size()));
  return labels;
}

Splits make_folder_splits(std::vector<Item> train, std::vector<Item> validation, std::size_t classes, const DataConfig& config) {
  const auto recipes = choose_recipes(config.augment, false, config.image_size == 0 ? kDefaultSize : config.image_size);
  return {make_image_dataset(std::make_unique<ImageFiles>(std::move(train), classes), recipes.train),
          make_image_dataset(std::make_unique<ImageFiles>(std::move(validation), classes), recipes.validation)};
}

std::vector<std::string> read_lines(const std::string& path) {
  const auto bytes = value_or_throw(read_file(path, kMaxListBytes));
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) lines.emplace_back(line);
  }
  return lines;
}

// Lines "class/number" stand for images/class/number.jpg.
std::vector<Item> read_food101_list(const std::string& folder, const std::string& list, const Labels& labels) {
  std::vector<Item> items;
  for (const std::string& line : read_lines(folder + "/meta/" + list)) {
    const auto label = labels.find(line.substr(0, line.find('/')));
    if (label == labels.end()) {
      throw std::runtime_error(fmt::format("{}/meta/{}: expected class/number of a class in classes.txt, got \"{}\"", folder, list, line));
    }
    items.push_back({fmt::format("{}/images/{}.jpg", folder, line), label->second});
  }
  return items;
}

bool is_image(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name.ends_with(".jpeg") || name.ends_with(".jpg") || name.ends_with(".png");
}

std::vector<std::string> class_folders(const std::string& folder) {
  std::vector<std::string> names;
  for (const std::string& name : list_folder(folder)) {
    if (!name.starts_with('.') && exists(path_in(folder, name) + "/.")) names.push_back(name);
  }
  return names;
}

std::vector<Item> list_images(const std::string& folder, const Labels& labels) {
  std::vector<Item> items;
  for (const auto& [name, label] : number(class_folders(folder))) {
    const auto known = labels.find(name);
    if (known == labels.end())
      throw std::runtime_error(fmt::format("{}/{}: there is no such class among the training images", folder, name));
    std::vector<std::string> files = list_folder(path_in(folder, name));
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) {
      if (is_image(file)) items.push_back({fmt::format("{}/{}/{}", folder, name, file), known->second});
    }
  }
  return items;
}

// Moves a tenth of these images of one class, at least one if there are two, chosen by name only: the same ones on every machine.
void take_tenth(std::vector<Item> of_class, std::vector<Item>& train, std::vector<Item>& validation) {
  const auto key = [](const Item& item) {
    const std::size_t folder = item.path.rfind('/', item.path.rfind('/') - 1);
    return std::pair(layer::key_of(0, item.path.substr(folder + 1)), item.path);
  };
  std::sort(of_class.begin(), of_class.end(), [&](const Item& a, const Item& b) { return key(a) < key(b); });
  const std::size_t taken = of_class.size() < 2 ? 0 : std::max<std::size_t>(1, of_class.size() / 10);
  for (std::size_t k = 0; k < of_class.size(); ++k) (k < taken ? validation : train).push_back(of_class[k]);
}

// Splits class folders that are not divided into training and validation.
Splits divide(const std::string& folder, const DataConfig& config) {
  const Labels labels = number(class_folders(folder));
  std::map<std::int64_t, std::vector<Item>> by_class;
  for (Item& item : list_images(folder, labels)) by_class[item.label].push_back(std::move(item));
  std::vector<Item> train;
  std::vector<Item> validation;
  for (auto& [label, items] : by_class) take_tenth(std::move(items), train, validation);
  const std::string note =
      fmt::format("{} is not divided into train/ and val/: {} of {} images are kept for validation, a tenth of each class, always the same",
                  folder, validation.size(), train.size() + validation.size());
  Splits splits = make_folder_splits(std::move(train), std::move(validation), labels.size(), config);
  splits.notes.push_back(note);
  return splits;
}

}  // namespace

Splits open_food101(const std::string& folder, const DataConfig& config) {
  for (const char* const needed : {"meta/classes.txt", "meta/train.txt", "meta/test.txt", "images"}) {
    if (!exists(path_in(folder, needed))) {
      throw std::runtime_error(
          fmt::format("Food-101 is not complete in {0}: {1} missing; unpack "
                      "https://data.vision.ee.ethz.ch/cvl/food-101.tar.gz and name its folder, which holds images/ and meta/",
                      folder, needed));
    }
  }
  const Labels labels = number(read_lines(folder + "/meta/classes.txt"));
  return make_folder_splits(read_food101_list(folder, "train.txt", labels), read_food101_list(folder, "test.txt", labels), labels.size(),
                            config);
}

Splits open_image_folders(const std::string& folder, const DataConfig& config) {
  const bool has_train = !class_folders(path_in(folder, "train")).empty();
  const bool has_val = !class_folders(path_in(folder, "val")).empty();
  if (!has_val && !exists(path_in(folder, "val"))) {
    const std::string undivided = has_train ? path_in(folder, "train") : folder;
    if (!class_folders(undivided).empty()) return divide(undivided, config);
  }
  if (!has_train || !has_val) {
    throw std::runtime_error(fmt::format(
        "no class folders in {}/{}; images:DIR expects DIR/train/CLASS/*.jpeg and DIR/val/CLASS/*.jpeg, or DIR/CLASS/*.jpeg alone", folder,
        has_train ? "val" : "train"));
  }
  const Labels labels = number(class_folders(folder + "/train"));
  return make_folder_splits(list_images(folder + "/train", labels), list_images(folder + "/val", labels), labels.size(), config);
}

}  // namespace epipe::data
