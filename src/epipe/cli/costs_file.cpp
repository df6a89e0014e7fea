#include "epipe/cli/costs_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "epipe/base/file.h"
#include "epipe/cli/command.h"

namespace epipe::cli {
namespace {

using schedule::PerCut;

constexpr std::uint64_t kMaxFileBytes = 1 << 20;
constexpr std::array kFields = {"forward",        "backward",        "backward_input",  "backward_weights", "bytes_forward",
                                "bytes_backward", "encode_forward",  "encode_backward", "decode_forward",   "decode_backward",
                                "carry_forward",  "carry_backward",  "delay",           "latency",          "machine_of",
                                "cores",          "bytes_per_second"};

nlohmann::json parse(const std::string& path) {
  const auto file = read_file(path, kMaxFileBytes);
  if (!file) throw UsageError(file.error().message);
  nlohmann::json object = nlohmann::json::parse(file.value(), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) throw UsageError(path + ": expected a JSON object");
  for (const auto& [name, value] : object.items()) {
    if (std::find(kFields.begin(), kFields.end(), name) == kFields.end()) throw UsageError(fmt::format("{}: unknown field {}", path, name));
  }
  return object;
}

void read_cuts(const nlohmann::json& object, const std::string& what, PerCut& values) {
  if (object.contains(what + "_forward")) object.at(what + "_forward").get_to(values.forward);
  if (object.contains(what + "_backward")) object.at(what + "_backward").get_to(values.backward);
}

std::vector<double> transfers(const nlohmann::json& object, const char* bytes) {
  auto seconds = object.at(bytes).get<std::vector<double>>();
  const double speed = object.at("bytes_per_second").get<double>();
  if (!(speed > 0)) throw UsageError(fmt::format("bytes_per_second must be more than 0, got {}", speed));
  for (double& value : seconds) value /= speed;
  return seconds;
}

PricedStep read_step(const nlohmann::json& object, const schedule::Placement& placement) {
  PricedStep step{{}, schedule::no_resources(placement)};
  object.at("forward").get_to(step.costs.forward);
  object.at("backward").get_to(step.costs.backward);
  if (object.contains("backward_input")) object.at("backward_input").get_to(step.costs.backward_input);
  if (object.contains("backward_weights")) object.at("backward_weights").get_to(step.costs.backward_weights);
  if (object.contains("delay")) object.at("delay").get_to(step.costs.delay);
  step.costs.transfer_forward = transfers(object, "bytes_forward");
  step.costs.transfer_backward = transfers(object, "bytes_backward");
  read_cuts(object, "encode", step.resources.encode);
  read_cuts(object, "decode", step.resources.decode);
  read_cuts(object, "carry", step.resources.carry_out);
  step.resources.carry_in = step.resources.carry_out;
  step.resources.latency = object.value("latency", 0.0);
  if (object.contains("machine_of")) object.at("machine_of").get_to(step.resources.machine_of);
  if (object.contains("cores")) object.at("cores").get_to(step.resources.cores);
  return step;
}

}  // namespace

PricedStep read_costs_file(const std::string& path, const schedule::Placement& placement) {
  const nlohmann::json object = parse(path);
  try {
    PricedStep step = read_step(object, placement);
    auto fits = check(step.costs, placement.stages());
    if (fits) fits = check(step.resources, placement);
    if (!fits) throw UsageError(fmt::format("{}: {}", path, fits.error().message));
    return step;
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace epipe::cli
