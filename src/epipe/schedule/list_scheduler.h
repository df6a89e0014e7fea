#pragma once

#include <vector>

#include "epipe/schedule/generate.h"

namespace epipe::schedule {

// What a schedule allows.
struct Limits {
  std::vector<int> in_flight;  // [n] most micro-batches of a stage between their forward and its B or Bi
  std::vector<int> live;       // [n] most between their forward and its B or Bw: Schedule::live_limit
  std::vector<bool> split;     // [n] Schedule::split
  int forwards_first = 1;      // on the last stage, before its first backward
};

// Runs the actions against the clock, each worker always starting what the limits allow and others wait for most; the order in which
// a worker starts them is its list.
Schedule list_schedule(const Request& request, Limits limits);

}  // namespace epipe::schedule
