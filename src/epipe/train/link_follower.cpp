#include "epipe/train/link_follower.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <stdexcept>

#include "epipe/codec/codec.h"

namespace epipe::train {
namespace {

using planner::Inputs;

constexpr double kAsGood = 0.05;  // of a step's time: what more bits may cost

// What a cut has for the direction: codecs, or those that it may have.
template <typename OfCut>
auto& part_of(OfCut& cut, wire::Direction direction) {
  return direction == wire::Direction::kForward ? cut.forward : cut.backward;
}

std::size_t index_of(const Inputs& inputs, const std::string& spec) {
  for (std::size_t i = 0; i < inputs.codecs.size(); ++i) {
    if (inputs.codecs[i].spec == spec) return i;
  }
  throw std::invalid_argument(fmt::format("--follow-link: what the codec {} costs is not known", spec));
}

// What it costs at bits between those of the table: as at the next ones above, but for its bytes.
planner::CodecCosts costs_at(const Inputs& inputs, double bits) {
  double next = std::ranges::max(kFollowedBits);
  for (const double one : kFollowedBits) next = one >= bits ? std::min(next, one) : next;
  planner::CodecCosts costs = inputs.codecs[index_of(inputs, fmt::format("auto:{}", next))];
  costs.bits *= bits / next;
  for (auto* const all : {&costs.forward, &costs.backward}) {
    for (planner::FrameCosts& frame : *all) frame.bytes.per_one *= bits / next;
  }
  return costs;
}

double monotonic_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

std::vector<double> followed_bits(const TrainConfig& config) {
  std::set<double> bits(std::begin(kFollowedBits), std::end(kFollowedBits));
  const auto add = [&](const std::string& spec) {
    if (const auto rate = codec::target_rate(spec); rate && *rate > 0) bits.insert(*rate);
  };
  for (const std::string& spec : {config.codec, config.codec_forward, config.codec_backward}) add(spec);
  for (const CodecAt& at : config.codec_at) add(at.spec);
  return {bits.begin(), bits.end()};
}

LinkFollower::LinkFollower(RunParts& run, FollowOptions options)
    : run_(run), options_(std::move(options)), open_(audited_cuts(run.coordinator->local().pipeline_config(), /*all=*/true)) {
  if (open_.empty()) {
    throw std::invalid_argument(
        "--follow-link chooses the bits of codecs that have some, such as auto or auto:2; no cut between workers has one: say --codec");
  }
  if (!options_.seconds) options_.seconds = monotonic_seconds;
  if (!options_.probe) {
    options_.probe = [&run](std::uint64_t up, std::uint64_t down) { return run.coordinator->probe_link(up, down); };
  }
  const Plan& plan = run.plan;
  choice_ = {plan.cuts, plan.place, plan.chunks, {}, plan.schedule, plan.in_flight, plan.costs};
  for (const auto& codecs : plan.codecs) {
    choice_.codecs.push_back({index_of(options_.costs, codecs.forward), index_of(options_.costs, codecs.backward)});
  }
  if (const auto fits = planner::check(options_.costs); !fits) throw std::invalid_argument(fits.error().message);
}

// The first one is short, whatever the link has become, and only says how long the other must be: buffers on the way take a few kilobytes
// at once.
session::LinkMeasurement LinkFollower::probe() {
  const session::LinkMeasurement expected = options_.probe(watch_.probe_bytes(0), watch_.probe_bytes(0));
  return options_.probe(watch_.probe_bytes(expected.up), watch_.probe_bytes(expected.down));
}

RateChange LinkFollower::choose(const session::LinkMeasurement& link, std::uint64_t step) const {
  Inputs inputs = options_.costs;
  inputs.link.up = link.up;
  inputs.link.down = link.down;
  inputs.link.delay = link.round_trip / 2;
  const pipeline::Rates& harmless = run_.auto_rates->rates();
  std::vector<planner::AllowedCodecs> allowed(choice_.cuts.size());
  for (const AuditedCut& at : open_) {
    const double least = at.fixed != 0 ? at.fixed : harmless[at.cut].of(at.direction);
    auto& codecs = part_of(allowed[at.cut], at.direction);
    codecs.push_back(inputs.codecs.size());
    inputs.codecs.push_back(costs_at(inputs, least));
    for (const double bits : kFollowedBits) {
      if (bits > least) codecs.push_back(index_of(inputs, fmt::format("auto:{}", bits)));
    }
  }
  const planner::Priced priced = planner::choose_rates(inputs, choice_, allowed, kAsGood);
  RateChange change{step, pipeline::Rates(choice_.cuts.size()), link, priced.price.seconds};
  for (const AuditedCut& at : open_) {
    const std::size_t codec = part_of(priced.choice.codecs[at.cut], at.direction);
    // 0 leaves it to what the codec or the harm says.
    const bool fewest = codec == part_of(allowed[at.cut], at.direction).front();
    change.rates[at.cut].of(at.direction) = fewest ? at.fixed : *codec::target_rate(inputs.codecs[codec].spec);
  }
  return change;
}

std::optional<RateChange> LinkFollower::look(std::uint64_t step) {
  RateRecord& record = *run_.rate_record;
  const RateChange* const present = record.at(step);
  const bool done_before = !record.changes().empty() && record.changes().back().step >= step;
  if (record.repeats() || done_before || !watch_.is_due(options_.seconds())) return std::nullopt;
  if (!watch_.known() && present != nullptr && present->link) watch_.resume(*present->link);
  const double begun = options_.seconds();
  const session::LinkMeasurement found = probe();
  const double ended = options_.seconds();
  const auto link = watch_.take(found, step, ended, ended - begun);
  if (!link) return std::nullopt;
  RateChange change = choose(*link, step);
  if (present != nullptr && same_rates(*present, change)) return std::nullopt;
  record.add(change);
  return change;
}

}  // namespace epipe::train
