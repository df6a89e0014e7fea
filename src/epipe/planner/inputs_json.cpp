#include "epipe/planner/inputs_json.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace epipe::planner {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::size_t kMostEntries = 4096;  // layers, workers, codecs: far beyond any model

// JSON has no infinity.
ordered_json finite(double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr); }
double or_unlimited(const json& object, const char* field) {
  const json& value = object.at(field);
  return value.is_null() ? kUnlimited : value.get<double>();
}

ordered_json json_of(const Layer& layer) {
  return {{"name", layer.name},
          {"flops", layer.flops},
          {"parameters", layer.parameters},
          {"trained", layer.trained},
          {"values", layer.values},
          {"other_bytes", layer.other_bytes},
          {"kept_bytes", layer.kept_bytes},
          {"with_client", layer.with_client}};
}

Layer layer_from(const json& object) {
  Layer layer;
  object.at("name").get_to(layer.name);
  object.at("flops").get_to(layer.flops);
  object.at("parameters").get_to(layer.parameters);
  object.at("trained").get_to(layer.trained);
  object.at("values").get_to(layer.values);
  object.at("other_bytes").get_to(layer.other_bytes);
  object.at("kept_bytes").get_to(layer.kept_bytes);
  object.at("with_client").get_to(layer.with_client);
  return layer;
}

ordered_json json_of(const Worker& worker) {
  return {{"name", worker.name},
          {"sizes", worker.sizes},
          {"forward", worker.forward},
          {"backward", worker.backward},
          {"accumulate", worker.accumulate},
          {"update", worker.update},
          {"memory", finite(worker.memory)},
          {"base", worker.base},
          {"machine", worker.machine},
          {"codec_speed", worker.codec_speed}};
}

Worker worker_from(const json& object) {
  Worker worker;
  object.at("name").get_to(worker.name);
  object.at("sizes").get_to(worker.sizes);
  object.at("forward").get_to(worker.forward);
  object.at("backward").get_to(worker.backward);
  object.at("accumulate").get_to(worker.accumulate);
  object.at("update").get_to(worker.update);
  worker.memory = or_unlimited(object, "memory");
  object.at("base").get_to(worker.base);
  object.at("machine").get_to(worker.machine);
  object.at("codec_speed").get_to(worker.codec_speed);
  return worker;
}

ordered_json json_of(const Line& line) { return {line.fixed, line.per_one}; }
Line line_from(const json& pair) { return {pair.at(0).get<double>(), pair.at(1).get<double>()}; }

ordered_json json_of(const FrameCosts& frame) {
  return {{"bytes", json_of(frame.bytes)}, {"encode", json_of(frame.encode)}, {"decode", json_of(frame.decode)}};
}

FrameCosts frame_from(const json& object) {
  return {line_from(object.at("bytes")), line_from(object.at("encode")), line_from(object.at("decode"))};
}

ordered_json json_of(const CodecCosts& codec);

template <typename T>
ordered_json array_of(const std::vector<T>& values) {
  ordered_json array = ordered_json::array();
  for (const T& value : values) array.push_back(json_of(value));
  return array;
}

template <typename T>
std::vector<T> array_from(const json& object, const char* field, T (*from)(const json&)) {
  const json& array = object.at(field);
  if (!array.is_array() || array.size() > kMostEntries) {
    throw std::invalid_argument(fmt::format("{}: expected an array of at most {} entries", field, kMostEntries));
  }
  std::vector<T> values;
  for (const json& value : array) values.push_back(from(value));
  return values;
}

ordered_json json_of(const CodecCosts& codec) {
  return {{"spec", codec.spec}, {"bits", codec.bits}, {"forward", array_of(codec.forward)}, {"backward", array_of(codec.backward)}};
}

CodecCosts codec_from(const json& object) {
  CodecCosts codec;
  object.at("spec").get_to(codec.spec);
  object.at("bits").get_to(codec.bits);
  codec.forward = array_from(object, "forward", frame_from);
  codec.backward = array_from(object, "backward", frame_from);
  return codec;
}

Inputs inputs_from(const json& object) {
  Inputs inputs;
  object.at("model").get_to(inputs.model);
  object.at("batch").get_to(inputs.batch);
  inputs.layers = array_from(object, "layers", layer_from);
  inputs.workers = array_from(object, "workers", worker_from);
  inputs.cores = array_from<double>(object, "cores", [](const json& value) { return value.is_null() ? kUnlimited : value.get<double>(); });
  const json& link = object.at("link");
  inputs.link = {or_unlimited(link, "up"), or_unlimited(link, "down"), link.at("delay").get<double>(), link.at("carry").get<double>(),
                 link.at("frame").get<double>(), link.at("server_ends").get<double>()};
  inputs.codecs = array_from(object, "codecs", codec_from);
  object.at("ring").get_to(inputs.ring);
  object.at("recompute").get_to(inputs.recompute);
  object.at("state_bytes").get_to(inputs.state_bytes);
  object.at("load_seconds").get_to(inputs.load_seconds);
  object.at("step_seconds").get_to(inputs.step_seconds);
  object.at("first_trained").get_to(inputs.first_trained);
  object.at("harm").get_to(inputs.harm);
  object.at("least_samples").get_to(inputs.constraints.least_samples);
  return inputs;
}

}  // namespace

ordered_json to_json(const Inputs& inputs) {
  ordered_json cores = ordered_json::array();
  for (const double value : inputs.cores) cores.push_back(finite(value));
  return {
      {"model", inputs.model},
      {"batch", inputs.batch},
      {"layers", array_of(inputs.layers)},
      {"workers", array_of(inputs.workers)},
      {"cores", cores},
      {"link",
       {{"up", finite(inputs.link.up)},
        {"down", finite(inputs.link.down)},
        {"delay", inputs.link.delay},
        {"carry", inputs.link.carry},
        {"frame", inputs.link.frame},
        {"server_ends", inputs.link.server_ends}}},
      {"codecs", array_of(inputs.codecs)},
      {"ring", inputs.ring},
      {"recompute", inputs.recompute},
      {"state_bytes", inputs.state_bytes},
      {"load_seconds", inputs.load_seconds},
      {"step_seconds", inputs.step_seconds},
      {"first_trained", inputs.first_trained},
      {"harm", inputs.harm},
      {"least_samples", inputs.constraints.least_samples}};
}

Result<Inputs> inputs_from_json(const json& object) {
  try {
    Inputs inputs = inputs_from(object);
    EPIPE_TRY(check(inputs));
    return inputs;
  } catch (const std::exception& error) {
    return bad_file(fmt::format("expected what epipe plan --json of this version writes; plan again ({})", error.what()));
  }
}

}  // namespace epipe::planner
