#include "epipe/pipeline/encoder_state.h"

#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <stdexcept>

namespace epipe::pipeline {
namespace {

using wire::Direction;

constexpr std::size_t kMostParts = 255;

// Calls work(cut index, direction, sender) for the senders that are here.
template <typename Work>
void for_senders(const std::vector<std::unique_ptr<Cut>>& cuts, const Work& work) {
  for (std::size_t j = 0; j < cuts.size(); ++j) {
    for (const auto direction : {Direction::kForward, Direction::kBackward}) {
      if (boundary::Sender* const sender = cuts[j]->sender(direction)) work(j, direction, *sender);
    }
  }
}

template <typename StatesOf>
codec::State named_states(const std::vector<std::unique_ptr<Cut>>& cuts, const StatesOf& states_of) {
  codec::State all;
  for_senders(cuts, [&](std::size_t j, Direction direction, const boundary::Sender& sender) {
    const auto states = states_of(sender);
    for (std::size_t part = 0; part < states.size(); ++part) {
      for (const auto& [name, tensor] : states[part]) {
        all.emplace(fmt::format("{}/{}/{}/{}", j, static_cast<int>(direction), part, name), tensor);
      }
    }
  });
  return all;
}

}  // namespace

codec::State encoder_state(const std::vector<std::unique_ptr<Cut>>& cuts) {
  return named_states(cuts, [](const boundary::Sender& sender) { return sender.state(); });
}

codec::State encoder_state_before(const std::vector<std::unique_ptr<Cut>>& cuts, std::uint64_t step) {
  return named_states(cuts, [step](const boundary::Sender& sender) { return sender.state_before(step); });
}

void set_encoder_state(const std::vector<std::unique_ptr<Cut>>& cuts, const codec::State& state) {
  std::map<std::pair<std::size_t, Direction>, std::vector<codec::State>> by_direction;
  for (const auto& [key, tensor] : state) {
    std::size_t j = 0;
    int direction = 0;
    std::size_t part = 0;
    int length = 0;
    if (std::sscanf(key.c_str(), "%zu/%d/%zu/%n", &j, &direction, &part, &length) != 3 || j >= cuts.size() || part > kMostParts) {
      throw std::invalid_argument(fmt::format("encoder state \"{}\" does not belong to this pipeline", key));
    }
    auto& states = by_direction[{j, static_cast<Direction>(direction)}];
    if (states.size() <= part) states.resize(part + 1);
    states[part].emplace(key.substr(static_cast<std::size_t>(length)), tensor);
  }
  for_senders(cuts, [&](std::size_t j, Direction direction, boundary::Sender& sender) { sender.set_state(by_direction[{j, direction}]); });
}

}  // namespace epipe::pipeline
