#pragma once

#include <cstdint>
#include <vector>

#include "epipe/planner/price.h"

namespace epipe::planner {

struct SearchConfig {
  int simulations = 2000;  // at most; of what the bound cannot rule out, the most promising come first
  std::size_t runners_up = 5;
  // A choice that is slower by no more than this share is as good: among those the one that codes fewest tensors wins, then the one with
  // the fewest chunks, then the one with the fewest in flight, then the one with the fewest bytes.
  double as_good = 0.02;
  bool exhaustive = false;  // simulate whatever fits, however little the bound promises: to check the search
};

struct Proposal {
  Priced best;
  std::vector<Binding> binds;      // of the best
  std::vector<Priced> runners_up;  // each with other cuts, one of them with the same cuts and other codecs; fastest first
  std::uint64_t considered = 0;    // combinations that the bound did not rule out
  std::uint64_t simulated = 0;     // of them, those that fit into memory
  bool complete = false;           // the bound rules out everything that was not simulated
};

// The fastest way to train that fits into memory and keeps the constraints. The same inputs give the same proposal. The error says what is
// missing where nothing fits.
Result<Proposal> search(const Inputs& inputs, const SearchConfig& config = {});

}  // namespace epipe::planner
