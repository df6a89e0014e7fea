#pragma once

#include <map>
#include <string>
#include <vector>

#include "epipe/data/data_spec.h"
#include "epipe/pipeline/pipeline.h"

namespace epipe::train {

// Cross entropy over classes, or the squared error of values (the mean over the values of a sample). Its predictions are the outputs.
pipeline::Loss make_loss(const data::DataSpec& data);

// The losses a program knows: "auto", which is make_loss(), and its own.
class Losses {
 public:
  // For `--loss NAME`. Throws std::invalid_argument if the name is taken or invalid.
  void add(const std::string& name, pipeline::Loss loss);
  // Throws std::invalid_argument that lists the known names.
  pipeline::Loss find(const std::string& name, const data::DataSpec& data) const;
  std::vector<std::string> names() const;

 private:
  std::map<std::string, pipeline::Loss> own_;
};

}  // namespace epipe::train
