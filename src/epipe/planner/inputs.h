#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "epipe/base/result.h"
#include "epipe/schedule/schedule.h"

// Model, machines and links as tables -> where to cut, who runs what, in which order, and how what crosses is coded. No tensors and no
// clock: whoever calls measures, estimates or is told.
namespace epipe::planner {

inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

// y by x.
struct Line {
  double fixed = 0;
  double per_one = 0;

  double of(double x) const { return fixed + per_one * x; }
};

struct Layer {
  std::string name;
  double flops = 0;          // of one forward of one sample
  double parameters = 0;     // all of them
  double trained = 0;        // of them, those with a gradient
  double values = 0;         // floating-point values of its outputs for one sample: what a cut after it codes
  double other_bytes = 0;    // of its other outputs, which cross as they are
  double kept_bytes = 0;     // for one sample between its forward and its backward
  bool with_client = false;  // must stay on worker 0
};

// What layers take does not grow evenly with a micro-batch: caches hold a small one. So the tables have several sizes; in between, and
// beyond the first and the last, what they take is on the line through the two nearest, and never less than 0.
struct Worker {
  std::string name;                            // "client"
  std::vector<double> sizes{};                 // samples of a micro-batch, ascending
  std::vector<std::vector<double>> forward{};  // seconds by layer, at each of these sizes
  std::vector<std::vector<double>> backward{};
  double accumulate = 0;       // seconds to add the gradient of one trained parameter to that of the micro-batches before
  double update = 0;           // of the optimizer for one trained parameter
  double memory = kUnlimited;  // bytes that its process may have
  double base = 0;             // bytes of the process without a model
  int machine = 0;
  double codec_speed = 1;  // by which its codecs are faster than CodecCosts says
};

// Between the client and each server, and between servers.
struct Link {
  double up = kUnlimited;    // bytes per second away from worker 0, or to the next worker
  double down = kUnlimited;  // and back
  double delay = 0;          // seconds, one way
  double carry = 0;          // seconds of a core at the client's end for one byte: encryption, the network's own work
  double frame = 0;          // and for a message that comes alone, however small
  double server_ends = 1;    // at a server's end so many times that: it may pass messages on to another process of its own
};

// Of one tensor, by its values.
struct FrameCosts {
  Line bytes{0, 4};
  Line encode{};  // seconds
  Line decode{};
};

struct CodecCosts {
  std::string spec;
  double bits = 32;                    // per value, of all tensors together
  std::vector<FrameCosts> forward{};   // of each layer's outputs; a single entry stands for all layers
  std::vector<FrameCosts> backward{};  // of their gradients, which are other tensors: many zeros, few large values

  bool lossy() const { return spec != "none"; }
  const FrameCosts& of(schedule::Direction direction, std::size_t layer) const {
    const auto& all = direction == schedule::Direction::kForward ? forward : backward;
    return all[all.size() == 1 ? 0 : layer];
  }
};

// What the search may not change.
struct Constraints {
  std::optional<std::vector<std::size_t>> cuts{};  // layer indices
  std::optional<std::vector<int>> place{};
  std::optional<std::string> schedule{};
  std::optional<int> chunks{};
  std::optional<int> in_flight{};
  int least_samples = 1;  // of a micro-batch: BatchNorm normalizes by it
  // The codecs that may be used, as indices of Inputs::codecs; empty: all.
  std::vector<std::size_t> forward_codecs{};
  std::vector<std::size_t> backward_codecs{};
  struct At {
    std::size_t cut = 0;
    schedule::Direction direction = schedule::Direction::kForward;
    std::size_t codec = 0;
  };
  std::vector<At> codec_at{};  // stronger than both
};

// A number that the plan rests on, for people.
struct Fact {
  std::string name;    // "up"
  std::string value;   // "10 Mbit/s"
  std::string source;  // "given", "measured", "estimated"
};

struct Inputs {
  std::string model;
  double batch = 0;
  std::vector<Layer> layers;
  std::vector<Worker> workers;  // 0 is the client
  std::vector<double> cores;    // by machine
  Link link;
  std::vector<CodecCosts> codecs;
  bool ring = true;               // worker 0 has the first and the last layers; otherwise worker j has stage j
  bool recompute = false;         // only the input of a stage is kept, and its forward runs again
  double state_bytes = 4;         // of gradient and optimizer, for one trained parameter
  double load_seconds = 0;        // of the cores of worker 0, to make one sample of a batch
  double step_seconds = 0;        // before the first and after the last action of a step: its command, reply and commit
  std::size_t first_trained = 0;  // no gradient passes the layers before it
  double harm = 0;                // that codecs which choose their bits may do; 0: a run's own default. Goes into the flags, prices nothing
  Constraints constraints;
  std::vector<Fact> facts;
};

// Tables that fit together, finite and of at least 0. The error names the field.
Result<void> check(const Inputs& inputs);

}  // namespace epipe::planner
