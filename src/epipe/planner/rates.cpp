#include "epipe/planner/rates.h"

#include <algorithm>

namespace epipe::planner {
namespace {

using schedule::Direction;

// A cut and direction whose bits may still rise.
struct OpenRate {
  std::size_t cut = 0;
  Direction direction = Direction::kForward;
  std::size_t at = 0;  // of what it may have
};

std::size_t& codec_of(Choice& choice, const OpenRate& open) {
  CutCodecs& codecs = choice.codecs[open.cut];
  return open.direction == Direction::kForward ? codecs.forward : codecs.backward;
}

}  // namespace

Priced choose_rates(const Inputs& inputs, Choice choice, const std::vector<AllowedCodecs>& allowed, double as_good) {
  std::vector<OpenRate> open;
  const auto options = [&](const OpenRate& one) -> const std::vector<std::size_t>& { return allowed[one.cut].of(one.direction); };
  for (std::size_t cut = 0; cut < choice.codecs.size(); ++cut) {
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      const OpenRate one{cut, direction};
      if (options(one).empty()) continue;
      codec_of(choice, one) = options(one).front();
      open.push_back(one);
    }
  }
  Pricer pricer(inputs);
  Priced best{choice, pricer.price(choice)};
  const double most = best.price.seconds * (1 + as_good);
  const auto bits = [&](const OpenRate& one) { return inputs.codecs[options(one)[one.at]].bits; };
  while (!open.empty()) {
    const auto fewest = std::min_element(open.begin(), open.end(), [&](const auto& a, const auto& b) { return bits(a) < bits(b); });
    if (fewest->at + 1 == options(*fewest).size()) {
      open.erase(fewest);
      continue;
    }
    Choice raised = best.choice;
    codec_of(raised, *fewest) = options(*fewest)[fewest->at + 1];
    Price price = pricer.price(raised);
    if (price.seconds > most) {
      open.erase(fewest);
      continue;
    }
    ++fewest->at;
    best = {std::move(raised), std::move(price)};
  }
  return best;
}

}  // namespace epipe::planner
