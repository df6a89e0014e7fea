#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "epipe/schedule/placement.h"

namespace epipe::schedule {

inline constexpr int kMaxChunks = 4096;

// Of what crosses a cut: activations go forward, gradients backward.
enum class Direction : std::uint8_t { kForward, kBackward };
inline constexpr std::array kDirections = {Direction::kForward, Direction::kBackward};

// The stage at which a tensor that left `stage` arrives, and the cut it crosses.
constexpr int next_stage(Direction direction, int stage) { return direction == Direction::kForward ? stage + 1 : stage - 1; }
constexpr int previous_stage(Direction direction, int stage) { return direction == Direction::kForward ? stage - 1 : stage + 1; }
constexpr int cut_after(Direction direction, int stage) { return direction == Direction::kForward ? stage : stage - 1; }

// A stage's backward is either whole (B) or split in two: other stages wait for Bi, nobody waits for Bw.
enum class Kind : std::uint8_t {
  kForward,          // F
  kBackward,         // B: gradients of the stage's input and of its weights
  kBackwardInput,    // Bi: gradient of its input
  kBackwardWeights,  // Bw: gradients of its weights
};
inline constexpr std::array kKinds = {Kind::kForward, Kind::kBackward, Kind::kBackwardInput, Kind::kBackwardWeights};

struct KindInfo {
  std::string_view letters;
  std::optional<Direction> direction;  // it takes its input and sends its output this way; none: neither crosses a cut
  int live;                            // what it adds to the micro-batches whose activations the stage holds
};

// By kind.
inline constexpr std::array<KindInfo, kKinds.size()> kKindInfo = {{
    {"F", Direction::kForward, +1},
    {"B", Direction::kBackward, -1},
    {"Bi", Direction::kBackward, 0},
    {"Bw", std::nullopt, -1},
}};

constexpr const KindInfo& info(Kind kind) { return kKindInfo[static_cast<std::size_t>(kind)]; }
constexpr std::string_view letters(Kind kind) { return info(kind).letters; }

// One micro-batch through one stage. On the last stage a forward ends with the loss, and its backward starts from there.
struct Action {
  Kind kind = Kind::kForward;
  int micro_batch = 0;  // i, 0 to m - 1
  int stage = 0;        // j, 0 to n - 1

  bool operator==(const Action&) const = default;
};

inline std::string to_string(const Action& a) { return fmt::format("{} {} {}", letters(a.kind), a.micro_batch, a.stage); }  // "F 0 1"

// Who runs which micro-batch when: every worker runs its list from front to back. On every stage each kind runs in ascending
// micro-batch order, so gradients are summed in one order whatever the schedule.
struct Schedule {
  Placement placement;
  int chunks = 0;               // m
  std::vector<int> live_limit;  // [n] most micro-batches a stage may hold between their forward and the end of their backward
  std::vector<bool> split;      // [n] the stage's backward is Bi and Bw instead of B
  std::vector<std::vector<Action>> per_worker;

  // What each micro-batch runs on stage j, in this order.
  std::span<const Kind> kinds(int j) const;
  // The kind of stage j that takes and sends tensors in this direction.
  Kind kind_of(Direction direction, int j) const;
  // The action that must have run before this one: what it takes its input from. None for a forward of stage 0.
  std::optional<Action> source(const Action& a) const;
};

// Stages before `first_trained` have nothing to train: their backwards go, and nobody waits for them. The rest is in order still.
void drop_backwards(Schedule& schedule, int first_trained);

}  // namespace epipe::schedule
