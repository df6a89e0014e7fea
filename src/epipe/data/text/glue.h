#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "epipe/data/text/tsv.h"

namespace epipe::data {

// One task of the GLUE benchmark: the sentences and labels in its TSV files, and its metrics.
struct GlueTask {
  std::string name;    // "stsb"
  std::string folder;  // "STS-B"
  std::string validation = "dev.tsv";
  TsvColumns columns;  // the sentences, then the label
  std::size_t sentences = 1;
  std::vector<std::string> labels;  // by class; empty: regression
  std::vector<std::string> metrics = {"accuracy"};

  bool regression() const { return labels.empty(); }
};

// By name, in upper or lower case, with or without hyphens. Throws std::invalid_argument that lists the tasks.
GlueTask glue_task(std::string_view name);

struct GlueExample {
  std::vector<std::string_view> sentences;
  float target;  // the class, or the value
};
// The examples of a file; views into `text`.
Result<std::vector<GlueExample>> parse_glue(std::string_view text, const GlueTask& task);

}  // namespace epipe::data
