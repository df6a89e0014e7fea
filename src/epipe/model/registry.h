#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "epipe/data/data_spec.h"
#include "epipe/model/model.h"

namespace epipe::model {

// The models a program knows, by name: "resnet18", "roberta:DIR".
class Registry {
 public:
  // Makes an architecture for the data. `argument` is the text after the colon in the model's name, empty if there is none. Throws
  // std::invalid_argument if either is unsuitable.
  using Factory = std::function<Architecture(const data::DataSpec& data, const std::string& argument)>;

  struct Entry {
    std::string name;
    std::string argument{};  // the argument's name in help ("DIR"), in brackets if it is optional; empty: no argument
    data::DataSpec::Kind input = data::DataSpec::Kind::kImages;
    Factory factory{};
    // For models whose arguments name files: an argument with this prefix names none, so any machine builds the same model from it.
    std::string portable_prefix{};
    std::function<std::string(const std::string& argument)> to_portable{};  // makes such an argument; throws std::invalid_argument
  };

  // Throws std::invalid_argument if the name is taken or invalid.
  void add(Entry entry);
  // Replaces the entry of that name if there is one.
  void replace(Entry entry);

  // All functions below throw std::invalid_argument with the known names if `name` is unknown.

  // If a factory draws initial values from PyTorch's generator, it draws them by (seed, name).
  Architecture architecture(std::string_view name, const data::DataSpec& data, std::uint64_t seed = 0) const;
  // The whole model, initialized by the seed.
  Model make_model(std::string_view name, const data::DataSpec& data, std::uint64_t seed) const;
  // The whole model, uninitialized.
  Model build_model(std::string_view name, const data::DataSpec& data) const;

  // The names as a user writes them: "resnet18", "roberta:DIR".
  std::vector<std::string> names() const;
  // Whether a model of this name reads token ids rather than images.
  bool takes_text(std::string_view name) const;
  // The name by which another machine can build the same model: "roberta:DIR" becomes "roberta:{...}" with the content of its config.json;
  // names without files are returned unchanged. Throws std::invalid_argument if the file is missing or invalid.
  std::string portable_name(std::string_view name) const;

  // Whether a model of this name is known and can be built without opening a file named in it.
  bool is_portable(std::string_view name) const;

 private:
  const Entry* find(std::string_view name) const;
  std::pair<const Entry*, std::string> parse(std::string_view text) const;

  std::vector<Entry> entries_;
};

// mlp, cnn, transformer, mobilenet_v2, resnet18, ...: zoo.h has them all.
Registry builtin_models();

}  // namespace epipe::model
