#include "epipe/data/open.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <stdexcept>

#include "epipe/data/sources.h"

namespace epipe::data {
namespace {

enum class Takes : std::uint8_t { kImageFlags, kTextFlags, kNothing };

struct Entry {
  std::string_view name;
  Takes takes;
  Splits (*open)(const std::string& folder, const DataConfig& config);
};

constexpr std::array kKinds = {
    Entry{"cifar10", Takes::kImageFlags, open_cifar10},
    Entry{"cifar100", Takes::kImageFlags, open_cifar100},
    Entry{"food101", Takes::kImageFlags, open_food101},
    Entry{"images", Takes::kImageFlags, open_image_folders},
    Entry{"npy", Takes::kNothing, open_npy},
};
constexpr std::string_view kGlue = "glue/";

[[noreturn]] void unknown(const std::string& spec) {
  throw std::invalid_argument(fmt::format("unknown data \"{}\"; known are {}", spec, fmt::join(data_specs(), ", ")));
}

// A flag that would do nothing is a mistake.
void check_flags(const DataConfig& config, Takes takes) {
  const auto refuse = [&](const char* flag) {
    throw std::invalid_argument(fmt::format("{} has no meaning for the data \"{}\"", flag, config.spec));
  };
  if (takes != Takes::kImageFlags && config.image_size != 0) refuse("--image-size");
  if (takes != Takes::kImageFlags && config.augment != "auto" && config.augment != "none") refuse("--augment");
  if (takes != Takes::kTextFlags && config.max_length != 0) refuse("--max-length");
  if (takes != Takes::kTextFlags && !config.bpe.empty()) refuse("--bpe");
}

Splits open_folder(const DataConfig& config) {
  const std::size_t colon = config.spec.find(':');
  const std::string name = config.spec.substr(0, colon);
  const std::string folder = colon == std::string::npos ? "" : config.spec.substr(colon + 1);
  const bool glue = name.starts_with(kGlue);
  const auto* const found = std::find_if(kKinds.begin(), kKinds.end(), [&](const Entry& entry) { return entry.name == name; });
  if (!glue && found == kKinds.end()) unknown(config.spec);
  if (folder.empty()) throw std::invalid_argument(fmt::format("expected {0}:DIR, got \"{1}\": say where the data is", name, config.spec));
  check_flags(config, glue ? Takes::kTextFlags : found->takes);
  return glue ? open_glue(name.substr(kGlue.size()), folder, config) : found->open(folder, config);
}

}  // namespace

std::vector<std::string> data_specs() {
  std::vector<std::string> all = {"synthetic"};
  for (const Entry& entry : kKinds) all.push_back(fmt::format("{}:DIR", entry.name));
  all.emplace_back("glue/TASK:DIR");
  return all;
}

Splits open_data(const DataConfig& config, DataSpec::Kind synthetic_kind, std::uint64_t seed) {
  if (config.spec != "synthetic") {
    Splits splits = open_folder(config);
    if (splits.train->size() == 0) throw std::runtime_error(fmt::format("\"{}\" has no training samples", config.spec));
    if (splits.validation->size() == 0) throw std::runtime_error(fmt::format("\"{}\" has no validation samples", config.spec));
    return splits;
  }
  check_flags(config, Takes::kNothing);
  return make_synthetic(synthetic_kind, seed);
}

std::string path_in(std::string_view folder, std::string_view name) { return fmt::format("{}/{}", folder, name); }

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

}  // namespace epipe::data
