#include "epipe/session/step_result.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "epipe/base/json_type.h"
#include "epipe/session/metric_json.h"

namespace epipe::session {
namespace {

using boundary::Traffic;
using nlohmann::json;
using pipeline::StepResult;
using pipeline::WorkerTimes;

template <typename T>
void take(const json& object, const char* name, T& value) {
  const json& field = object.at(name);
  if (!holds<T>(field)) throw std::invalid_argument(std::string("a peer's step result has no proper ") + name);
  field.get_to(value);
}

// JSON has no NaN; the library writes null.
double number_or_nan(const json& j) { return j.is_null() ? std::numeric_limits<double>::quiet_NaN() : j.get<double>(); }

void merge_cuts(StepResult& into, const StepResult& other) {
  for (std::size_t j = 0; j < into.forward.size(); ++j) {
    into.forward[j] += other.forward[j];
    into.backward[j] += other.backward[j];
  }
  for (std::size_t j = 0; j < into.peak_live.size(); ++j) into.peak_live[j] = std::max(into.peak_live[j], other.peak_live[j]);
}

}  // namespace

json to_json(const StepResult& r) {
  return {{"loss", r.loss},
          {"correct", r.correct},
          {"samples", r.samples},
          {"terms", r.terms},
          {"non_finite", r.non_finite},
          {"forward", list_to_json(r.forward)},
          {"backward", list_to_json(r.backward)},
          {"workers", list_to_json(r.workers)},
          {"peak_live", r.peak_live}};
}

StepResult step_result_from_json(const json& j) {
  StepResult r;
  try {
    r.loss = number_or_nan(j.at("loss"));
    take(j, "correct", r.correct);
    take(j, "samples", r.samples);
    take(j, "terms", r.terms);
    take(j, "non_finite", r.non_finite);
    r.forward = list_from_json<Traffic>(j.at("forward"));
    r.backward = list_from_json<Traffic>(j.at("backward"));
    r.workers = list_from_json<WorkerTimes>(j.at("workers"));
    take(j, "peak_live", r.peak_live);
  } catch (const json::exception& error) {
    throw std::invalid_argument(std::string("a peer's step result is damaged: ") + error.what());
  }
  return r;
}

void check_fits(const StepResult& r, std::size_t cuts, std::size_t workers) {
  if (r.forward.size() != cuts || r.backward.size() != cuts || r.workers.size() != workers || r.peak_live.size() != cuts + 1) {
    throw std::invalid_argument("a peer's step result is of another pipeline");
  }
}

StepResult no_result(std::size_t cuts, std::size_t workers) {
  StepResult r;
  r.forward.resize(cuts);
  r.backward.resize(cuts);
  r.workers.resize(workers);
  r.peak_live.resize(cuts + 1);
  return r;
}

void merge(StepResult& into, const StepResult& other) {
  into.loss += other.loss;
  into.correct += other.correct;
  into.non_finite = into.non_finite || other.non_finite;
  merge_cuts(into, other);
  for (std::size_t w = 0; w < into.workers.size(); ++w) into.workers[w] += other.workers[w];
}

void add_replica(StepResult& into, const StepResult& replica) {
  const auto terms = static_cast<double>(into.terms + replica.terms);
  if (terms > 0) {
    into.loss = (into.loss * static_cast<double>(into.terms) + replica.loss * static_cast<double>(replica.terms)) / terms;
  }
  into.samples += replica.samples;
  into.terms += replica.terms;
  into.non_finite = into.non_finite || replica.non_finite;
  into.correct += replica.correct;
  merge_cuts(into, replica);
  into.workers.insert(into.workers.end(), replica.workers.begin(), replica.workers.end());
  if (!replica.predictions.defined()) return;
  into.predictions = torch::cat({into.predictions.cpu(), replica.predictions});  // the replica's came as bytes
  into.targets = torch::cat({into.targets.cpu(), replica.targets});
}

}  // namespace epipe::session
