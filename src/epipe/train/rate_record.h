#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epipe/pipeline/pipeline.h"
#include "epipe/session/coordinator.h"

namespace epipe::train {

// From a step on, bits per value that a link has room for.
struct RateChange {
  std::uint64_t step = 0;
  pipeline::Rates rates;                           // by cut; 0: nothing is said of it
  std::optional<session::LinkMeasurement> link{};  // that they were chosen for; nothing where they come from a record
  double seconds = 0;                              // that a step was predicted to take
};

// Which rates were chosen for the link, and from which step on. Links are measured, so what is chosen depends on time; what is in the
// record does not any more. A step that is done again, after a loss, in a resumed run or in another run with this record, has the rates it
// had, and the weights are the same to the bit.
class RateRecord final : public session::OwnState {
 public:
  // `record`: to be repeated, as text() gives it; empty: none. Throws std::invalid_argument.
  RateRecord(std::size_t cuts, std::string_view record);

  // In force at this step; null: none.
  const RateChange* at(std::uint64_t step) const;
  // Whether every step's rates are in the record: nothing is to be chosen.
  bool repeats() const { return repeats_; }
  const std::vector<RateChange>& changes() const { return changes_; }
  void add(RateChange change);  // at a later step than all before

  // "0:8,8,4,4;137:2,2,2,2": for each cut the bits forward and backward.
  std::string text() const;

  session::NamedTensors state() const override;
  // What is known of later steps than the state's stays: a run that goes back does them as it did.
  void set_state(const session::NamedTensors& state) override;

 private:
  std::vector<RateChange> parse(std::string_view text) const;

  std::size_t cuts_;
  std::vector<RateChange> changes_;
  bool repeats_ = false;
};

bool same_rates(const RateChange& one, const RateChange& other);

// The rates of a step: of each cut and direction the most bits that either asks for. What is needed is never undercut.
pipeline::Rates at_least(const pipeline::Rates& needed, const RateChange* change);

// A line of metrics.jsonl.
nlohmann::json rates_json(const RateChange& change, std::uint64_t epoch);
// For people: "from step 137 on the link carries 4.8 Mbit/s up and 4.9 down; bits per value: cut 0 forward 2, ..."
std::string describe(const RateChange& change);

}  // namespace epipe::train
