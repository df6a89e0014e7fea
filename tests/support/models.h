#pragma once

#include <string>

#include "epipe/train/registry.h"

// What `epipe` itself knows by name.
namespace epipe::testing {

inline const train::Registry& registry() {
  static const train::Registry kRegistry;
  return kRegistry;
}

inline model::Architecture architecture_of(const std::string& name, const data::DataSpec& data) {
  return registry().models.architecture(name, data);
}
inline model::Model make_model(const std::string& name, const data::DataSpec& data, std::uint64_t seed) {
  return registry().models.make_model(name, data, seed);
}
inline model::Model build_model(const std::string& name, const data::DataSpec& data) { return registry().models.build_model(name, data); }
inline bool takes_text(const std::string& name) { return registry().models.takes_text(name); }

}  // namespace epipe::testing
