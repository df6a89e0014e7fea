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

// The models that a program knows, by name: "resnet18", "roberta:DIR".
class Registry {
 public:
  // Fits an architecture to the data. `argument` is what follows the colon of the model's name; empty where nothing does. Throws
  // std::invalid_argument where one of them does not fit.
  using Factory = std::function<Architecture(const data::DataSpec& data, const std::string& argument)>;

  struct Entry {
    std::string name;
    std::string argument{};  // what a user writes after the colon ("DIR"), in brackets where it may be left out; empty: nothing
    data::DataSpec::Kind input = data::DataSpec::Kind::kImages;
    Factory factory{};
    // Where arguments name files: one that begins so names none, and another machine builds the same model from it.
    std::string portable_prefix{};
    std::function<std::string(const std::string& argument)> to_portable{};  // such an argument; throws std::invalid_argument
  };

  // Throws std::invalid_argument where the name is taken or no name.
  void add(Entry entry);
  // In place of the entry of that name, where there is one.
  void replace(Entry entry);

  // All below throw std::invalid_argument that lists the known names where this is none of them.

  // A factory that draws first values from PyTorch's own generator draws them by (seed, name).
  Architecture architecture(std::string_view name, const data::DataSpec& data, std::uint64_t seed = 0) const;
  // The whole model, initialized by the seed.
  Model make_model(std::string_view name, const data::DataSpec& data, std::uint64_t seed) const;
  // The whole model without its first values.
  Model build_model(std::string_view name, const data::DataSpec& data) const;

  // The names as a user writes them: "resnet18", "roberta:DIR".
  std::vector<std::string> names() const;
  // Whether a model of this name reads token ids rather than images.
  bool takes_text(std::string_view name) const;
  // The name by which another machine can build the same model: "roberta:DIR" becomes "roberta:{...}" with what its config.json says;
  // names without files stay. Throws std::invalid_argument where the file is not there or does not fit.
  std::string portable_name(std::string_view name) const;

  // Whether a model of this name is known and built without opening a file that the name chooses.
  bool is_portable(std::string_view name) const;

 private:
  const Entry* find(std::string_view name) const;
  std::pair<const Entry*, std::string> parse(std::string_view text) const;

  std::vector<Entry> entries_;
};

// mlp, cnn, transformer, mobilenet_v2, resnet18, ...: zoo.h has them all.
Registry builtin_models();

}  // namespace epipe::model
