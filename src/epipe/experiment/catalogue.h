#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "epipe/base/result.h"

// The reference's experiments: every row of its published tables with the flags to repeat it here.
namespace epipe::experiment {

// Flags in order, "--lr" and its value. A flag may occur several times.
using Flags = std::vector<std::pair<std::string, std::string>>;

// "--codec none --batch 32" as flags; a word without "--" belongs to the flag before it.
Result<Flags> parse_flags(const std::vector<std::string>& words);
std::vector<std::string> words_of(std::string_view text);
// The flags that are not in `others`, then all of `others`, which win.
Flags overridden(const Flags& flags, const Flags& others);

// A published figure: "accuracy", "sd", "samples_per_s", ... README.md in experiments/ lists them.
using Figures = std::vector<std::pair<std::string, std::string>>;

enum class Kind : std::uint8_t { kPipeline, kDataParallel, kParameters };

struct Entry {
  std::string id;
  std::string table;    // its file, without extension
  std::string same_as;  // the first entry with the same flags; it may be itself. Runs are shared between them
  Kind kind = Kind::kPipeline;
  std::string data;     // cifar10, glue/rte, ...
  std::string weights;  // the model's name if the published run started from trained weights
  std::string model;
  std::string partition;
  Flags flags;               // for train (or info), without data, weights, devices, epochs and flags that scale changes
  std::int64_t samples = 0;  // of the training set
  int epochs = 0;
  double warmup = 0;     // share of all steps
  int workers = 1;       // devices it needs
  int replicas = 1;      // of the whole model, data parallel
  std::string baseline;  // the entry to compare its speed with
  Figures published;
  std::string note;

  std::string flag(std::string_view name) const;  // empty if it has none
  std::string published_value(std::string_view name) const;
};

// All entries in the order of the files. An error names file and line, or the id.
Result<std::vector<Entry>> read_catalogue();

// The entries whose id matches one of the patterns (* and ?), each once, in their order. An error if a pattern matches none.
Result<std::vector<Entry>> select(const std::vector<Entry>& all, const std::vector<std::string>& patterns);

// "RTE, roberta-base, roberta-1, sort:6+2, batch 32 in 4 chunks, 2 workers"
std::string describe(const Entry& entry);
// "accuracy 95.89 ± 0.07, 228.57 samples/s, speed-up 0.607"; "-" if nothing was published.
std::string describe(const Figures& figures);

}  // namespace epipe::experiment
