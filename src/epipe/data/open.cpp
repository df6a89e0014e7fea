#include "epipe/data/open.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
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
    Entry{"text", Takes::kTextFlags, open_text},
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
  if (takes != Takes::kTextFlags && !config.tokenizer.empty()) refuse("--tokenizer");
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

Splits not_empty(Splits splits, const std::string& spec) {
  if (splits.train->size() == 0) throw std::runtime_error(fmt::format("\"{}\" has no training samples", spec));
  if (splits.validation->size() == 0) throw std::runtime_error(fmt::format("\"{}\" has no validation samples", spec));
  return splits;
}

}  // namespace

std::vector<std::string> data_specs() {
  std::vector<std::string> all = {"synthetic"};
  for (const Entry& entry : kKinds) all.push_back(fmt::format("{}:DIR", entry.name));
  all.emplace_back("glue/TASK:DIR");
  return all;
}

Splits open_data(const DataConfig& config, DataSpec::Kind synthetic_kind, std::uint64_t seed) {
  if (config.spec != "synthetic") return not_empty(open_folder(config), config.spec);
  check_flags(config, Takes::kNothing);
  return make_synthetic(synthetic_kind, seed);
}

void Registry::add(const std::string& name, Open open) {
  const auto known = specs();
  const auto is_taken = [&](const std::string& spec) { return spec.substr(0, spec.find_first_of(":/")) == name; };
  if (name.empty() || name.find_first_of(":/, \"'\n") != std::string::npos) {
    throw std::invalid_argument(
        fmt::format("\"{}\" is not a valid name for data: expected one without colons, slashes, commas, quotes and spaces", name));
  }
  if (std::any_of(known.begin(), known.end(), is_taken)) {
    throw std::invalid_argument(fmt::format("there is data called {} already; choose another name", name));
  }
  own_.emplace(name, std::move(open));
}

Splits Registry::open(const DataConfig& config, DataSpec::Kind synthetic_kind, std::uint64_t seed) const {
  const std::size_t colon = config.spec.find(':');
  const auto found = own_.find(config.spec.substr(0, colon));
  if (found == own_.end()) return open_data(config, synthetic_kind, seed);
  check_flags(config, Takes::kNothing);
  return not_empty(found->second(colon == std::string::npos ? "" : config.spec.substr(colon + 1)), config.spec);
}

std::vector<std::string> Registry::specs() const {
  auto all = data_specs();
  for (const auto& [name, open] : own_) all.push_back(name);
  return all;
}

std::string path_in(std::string_view folder, std::string_view name) { return fmt::format("{}/{}", folder, name); }

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

}  // namespace epipe::data
