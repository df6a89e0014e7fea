#include "epipe/train/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "epipe/base/file.h"
#include "epipe/session/metric_json.h"
#include "epipe/session/reducer.h"

namespace epipe::train {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

json cut_json(std::size_t cut, const char* direction, const std::string& codec, const boundary::Traffic& traffic, bool error_measured) {
  json line = session::metrics_line(traffic);
  line.update({{"cut", cut}, {"direction", direction}, {"codec", codec}});
  if (!error_measured) line["rel_error"] = nullptr;
  return line;
}

// The lines of earlier steps; also drops a last line truncated by a crash.
std::string lines_before(const std::string& path, std::uint64_t first_step) {
  std::ifstream file(path);
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    const json parsed = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (parsed.is_discarded() || parsed.value("step", std::uint64_t{0}) >= first_step) break;
    if (parsed.value("kind", "") == "epoch" && parsed.value("end_step", first_step + 1) > first_step) break;
    kept += line + "\n";
  }
  return kept;
}

}  // namespace

json cuts_json(const pipeline::StepResult& result, const std::vector<CutNames>& codecs, bool error_measured) {
  json all = json::array();
  for (std::size_t j = 0; j < codecs.size(); ++j) {
    if (result.forward[j].wire_bytes == 0) continue;  // handed over within one worker
    all.push_back(cut_json(j, "forward", codecs[j].forward, result.forward[j], error_measured));
    if (result.backward[j].wire_bytes == 0) continue;  // nothing before this cut is trained
    all.push_back(cut_json(j, "backward", codecs[j].backward, result.backward[j], error_measured));
  }
  return all;
}

json workers_json(const pipeline::StepResult& result, double optimizer_seconds, int replicas) {
  json all = json::array();
  const std::size_t of_replica = result.workers.size() / static_cast<std::size_t>(replicas);
  for (std::size_t w = 0; w < result.workers.size(); ++w) {
    auto times = result.workers[w];
    times.optimizer += optimizer_seconds;
    json line = session::metrics_line(times);
    line.update({{"worker", w}, {"replica", w / of_replica}});
    all.push_back(std::move(line));
  }
  return all;
}

std::string trace_json(const std::vector<Tracer::Event>& traced, int workers) {
  json events = json::array();
  std::map<int, std::string> tracks;
  for (int w = 0; w < workers; ++w) tracks[w] = fmt::format("worker {}", w);
  for (const Tracer::Event& e : traced) {
    if (e.track == session::kReducerTrack) {
      tracks[e.track] = "worker 0 all-reduce";
    } else if (e.track >= 100) {
      const int index = e.track - 100;
      tracks[e.track] =
          fmt::format("cut {} {} {}", index / 4, index % 4 < 2 ? "forward" : "backward", index % 2 == 0 ? "sender" : "receiver");
    }
    const std::string name = e.name.empty() ? std::string(e.category) : e.name;
    events.push_back({{"name", name},
                      {"cat", e.category},
                      {"ph", "X"},
                      {"ts", e.begin * 1e6},
                      {"dur", (e.end - e.begin) * 1e6},
                      {"pid", 0},
                      {"tid", e.track},
                      {"args", {{"step", e.step}}}});
  }
  for (const auto& [track, name] : tracks) {
    events.push_back({{"ph", "M"}, {"name", "thread_name"}, {"pid", 0}, {"tid", track}, {"args", {{"name", name}}}});
  }
  return json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump();
}

MetricsFile::MetricsFile(const std::string& path, std::uint64_t first_step) : events_(path.substr(0, path.rfind('/')), first_step) {
  const std::string kept = first_step > 0 ? lines_before(path, first_step) : "";
  const auto written = write_file(path, {std::as_bytes(std::span(kept))});
  if (!written) throw std::runtime_error(written.error().message);
  file_ = std::fopen(path.c_str(), "a");
  if (file_ == nullptr) throw std::runtime_error(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
}

MetricsFile::~MetricsFile() { std::fclose(file_); }

void MetricsFile::append(const json& line) {
  const std::string text = line.dump() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0) {
    throw std::runtime_error(fmt::format("cannot append to the metrics: {}", std::strerror(errno)));
  }
  events_.append(line);
}

void MetricsFile::sync() const {
  if (::fsync(::fileno(file_)) != 0) throw std::runtime_error(fmt::format("cannot write the metrics: {}", std::strerror(errno)));
}

}  // namespace epipe::train
