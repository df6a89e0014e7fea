#include "epipe/planner/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace epipe::planner {
namespace {

Error bad_inputs(std::string text) { return {ErrorCode::kBadSchedule, std::move(text)}; }

Result<void> check_number(double value, const std::string& what) {
  if (std::isfinite(value) && value >= 0) return {};
  return bad_inputs(fmt::format("{} must be a number of at least 0, got {}", what, value));
}

Result<void> check_rate(double value, const std::string& what) {
  if (value > 0) return {};
  return bad_inputs(fmt::format("{} must be more than 0, got {}: nothing would arrive", what, value));
}

Result<void> check_seconds(const std::vector<std::vector<double>>& seconds, const Worker& worker, std::size_t layers,
                           const std::string& what) {
  if (seconds.size() != layers) {
    return bad_inputs(fmt::format("expected {} {} times, one for each layer, got {}", layers, what, seconds.size()));
  }
  for (const auto& at_sizes : seconds) {
    if (at_sizes.size() != worker.sizes.size()) {
      return bad_inputs(fmt::format("expected {} seconds at each of {} sizes of a micro-batch, got {}", what, worker.sizes.size(),
                                    at_sizes.size()));
    }
    for (const double value : at_sizes) EPIPE_TRY(check_number(value, what + " seconds"));
  }
  return {};
}

Result<void> check_sizes(const Worker& worker) {
  if (worker.sizes.empty()) return bad_inputs(fmt::format("expected {}'s times at one size of a micro-batch or more", worker.name));
  double before = -1;
  for (const double size : worker.sizes) {
    EPIPE_TRY(check_number(size, worker.name + "'s size of a micro-batch"));
    if (size <= before) {
      return bad_inputs(fmt::format("expected {}'s sizes of a micro-batch in ascending order, got {}", worker.name, size));
    }
    before = size;
  }
  return {};
}

Result<void> check_worker(const Worker& worker, const Inputs& inputs) {
  EPIPE_TRY(check_sizes(worker));
  EPIPE_TRY(check_seconds(worker.forward, worker, inputs.layers.size(), worker.name + "'s forward"));
  EPIPE_TRY(check_seconds(worker.backward, worker, inputs.layers.size(), worker.name + "'s backward"));
  EPIPE_TRY(check_number(worker.accumulate, worker.name + "'s seconds to add a gradient"));
  EPIPE_TRY(check_number(worker.update, worker.name + "'s update"));
  EPIPE_TRY(check_number(worker.base, worker.name + "'s base memory"));
  EPIPE_TRY(check_rate(worker.memory, worker.name + "'s memory"));
  EPIPE_TRY(check_rate(worker.codec_speed, worker.name + "'s codec speed"));
  if (worker.machine >= 0 && static_cast<std::size_t>(worker.machine) < inputs.cores.size()) return {};
  return bad_inputs(fmt::format("{} is on machine {}, but {} machines have cores", worker.name, worker.machine, inputs.cores.size()));
}

Result<void> check_layer(const Layer& layer) {
  for (const double value : {layer.flops, layer.parameters, layer.trained, layer.values, layer.other_bytes, layer.kept_bytes}) {
    EPIPE_TRY(check_number(value, "what layer " + layer.name + " costs"));
  }
  return {};
}

Result<void> check_codec(const CodecCosts& codec, std::size_t layers) {
  const std::string what = "what the codec " + codec.spec + " costs";
  EPIPE_TRY(check_number(codec.bits, what));
  for (const auto* const all : {&codec.forward, &codec.backward}) {
    if (all->size() != 1 && all->size() != layers) {
      return bad_inputs(fmt::format("{}: expected an entry for each of {} layers, or one for all, got {}", what, layers, all->size()));
    }
    for (const FrameCosts& frame : *all) {
      for (const Line& line : {frame.bytes, frame.encode, frame.decode}) {
        EPIPE_TRY(check_number(line.fixed, what));
        EPIPE_TRY(check_number(line.per_one, what));
      }
    }
  }
  return {};
}

Result<void> check_codecs(const Inputs& inputs) {
  if (inputs.codecs.empty()) return bad_inputs("expected at least one codec");
  for (const CodecCosts& codec : inputs.codecs) EPIPE_TRY(check_codec(codec, inputs.layers.size()));
  const auto known = [&](std::size_t codec) { return codec < inputs.codecs.size(); };
  const Constraints& only = inputs.constraints;
  const bool fit = std::all_of(only.forward_codecs.begin(), only.forward_codecs.end(), known) &&
                   std::all_of(only.backward_codecs.begin(), only.backward_codecs.end(), known) &&
                   std::all_of(only.codec_at.begin(), only.codec_at.end(), [&](const auto& at) { return known(at.codec); });
  if (!fit) return bad_inputs("a constraint names a codec that is not among the codecs");
  return {};
}

Result<void> check_cuts(const std::vector<std::size_t>& cuts, std::size_t layers) {
  std::size_t before = 0;
  for (const std::size_t cut : cuts) {
    if (cut <= before || cut >= layers) {
      return bad_inputs(fmt::format("expected cuts in ascending order between 1 and {}, got {}", layers - 1, cut));
    }
    before = cut;
  }
  return {};
}

}  // namespace

Result<void> check(const Inputs& inputs) {
  if (inputs.layers.empty()) return bad_inputs("expected a model of at least one layer");
  if (inputs.workers.empty()) return bad_inputs("expected at least one worker");
  EPIPE_TRY(check_rate(inputs.batch, "the batch"));
  for (const Layer& layer : inputs.layers) EPIPE_TRY(check_layer(layer));
  for (const Worker& worker : inputs.workers) EPIPE_TRY(check_worker(worker, inputs));
  for (const double cores : inputs.cores) EPIPE_TRY(check_rate(cores, "the cores of a machine"));
  EPIPE_TRY(check_rate(inputs.link.up, "the link's rate up"));
  EPIPE_TRY(check_rate(inputs.link.down, "the link's rate down"));
  EPIPE_TRY(check_number(inputs.link.delay, "the link's delay"));
  EPIPE_TRY(check_number(inputs.link.carry, "the link's work for a byte"));
  EPIPE_TRY(check_number(inputs.link.frame, "the link's work for a message"));
  EPIPE_TRY(check_number(inputs.link.server_ends, "the work at a server's end"));
  EPIPE_TRY(check_number(inputs.load_seconds, "the time to load a sample"));
  EPIPE_TRY(check_number(inputs.step_seconds, "the time of a step around its actions"));
  EPIPE_TRY(check_number(inputs.harm, "the bound of harm"));
  EPIPE_TRY(check_number(inputs.state_bytes, "the optimizer's memory"));
  EPIPE_TRY(check_codecs(inputs));
  if (inputs.constraints.cuts) EPIPE_TRY(check_cuts(*inputs.constraints.cuts, inputs.layers.size()));
  const int chunks = inputs.constraints.chunks.value_or(1);
  if (chunks < 1 || chunks > inputs.batch) {
    return bad_inputs(fmt::format("{} chunks of a batch of {} samples: expected 1 to {}", chunks, inputs.batch, inputs.batch));
  }
  return {};
}

}  // namespace epipe::planner
