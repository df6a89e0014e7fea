#pragma once

#include "epipe/data/data_spec.h"
#include "epipe/epipe.h"

namespace epipe {

// Converts between the public DataSpec and data::DataSpec.
inline data::DataSpec to_private(const DataSpec& s) {
  return {static_cast<data::DataSpec::Kind>(s.kind), s.shape, s.classes, s.vocabulary, s.regression, s.metrics, s.next_token};
}

inline DataSpec to_public(const data::DataSpec& s) {
  return {static_cast<DataSpec::Kind>(s.kind), s.shape, s.classes, s.vocabulary, s.regression, s.metrics, s.next_token};
}

}  // namespace epipe
