#pragma once

#include <string>
#include <variant>
#include <vector>

#include "epipe/experiment/catalogue.h"

namespace epipe::experiment {

// How much of an experiment to run, and on which devices.
struct Settings {
  double scale = 1;                  // share of the samples and of the epochs
  std::int64_t max_steps = 0;        // 0: all
  std::vector<std::string> devices;  // by worker, or one for all; empty: a GPU for each worker
  std::string data_root;             // holds cifar10/, cifar100/, food101/, glue/, imagenet/
  std::string weights_root;          // holds mobilenet_v2.safetensors, roberta-base.safetensors
  bool from_scratch = false;         // if weights are missing, start from new ones
  Flags extra;                       // override the entry's flags
};

// The capabilities of the machine and the program.
struct Machine {
  int gpus = 0;
  bool replicas = false;  // epipe train knows --replicas
};

// A run ready to start, except for --seed and --run-dir.
struct Call {
  std::vector<std::string> words;  // arguments of the program: train ..., launch ... -- train ..., info ...
  std::string data;                // the folder it reads; empty: none
  std::string weights;             // the file with its initial weights; empty: none
  std::string devices;             // "cuda:0,cuda:1": for every worker of every replica
};

// Why an entry is not run.
struct NotRun {
  std::string reason;
};

std::variant<Call, NotRun> call_of(const Entry& entry, const Settings& settings, const Machine& machine);

// "scale 0.05, at most 20 steps, on cpu,cpu, --image-size 64": distinguishes runs of one entry.
std::string settings_text(const Settings& settings, const Call& call);

}  // namespace epipe::experiment
