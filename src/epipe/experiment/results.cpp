#include "epipe/experiment/results.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "epipe/base/file.h"

namespace epipe::experiment {
namespace {

using nlohmann::ordered_json;

constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;

RunResult result_of(const ordered_json& line) {
  RunResult r;
  r.id = line.at("id");
  r.seed = line.at("seed");
  r.settings = line.at("settings");
  r.command = line.at("command");
  r.data = line.value("data", "");
  r.folder = line.value("folder", "");
  r.failed = line.value("failed", "");
  Outcome& o = r.outcome;
  o.has_value = line.contains("value");
  o.metric = line.value("metric", "");
  o.value = line.value("value", -1.0);
  o.steps = line.value("steps", 0.0);
  o.samples_per_s = line.value("samples_per_s", -1.0);
  o.seconds_per_batch = line.value("seconds_per_batch", -1.0);
  o.bits_per_value = line.value("bits_per_value", -1.0);
  o.wire_bytes_per_step = line.value("wire_bytes_per_step", -1.0);
  o.bandwidth_MBps = line.value("bandwidth_MBps", std::vector<double>{});
  o.parts = line.value("parts", std::map<std::string, double>{});
  o.parameters = line.value("parameters", -1.0);
  return r;
}

}  // namespace

std::string to_line(const RunResult& r) {
  ordered_json line = {{"id", r.id},           {"seed", r.seed}, {"settings", r.settings},
                       {"command", r.command}, {"data", r.data}, {"folder", r.folder}};
  if (!r.failed.empty()) {
    line["failed"] = r.failed;
    return line.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  }
  const Outcome& o = r.outcome;
  const auto add = [&](const char* name, double value) {
    if (value >= 0) line[name] = value;
  };
  if (o.has_value) {
    line["metric"] = o.metric;
    line["value"] = o.value;
  }
  add("steps", o.steps);
  add("samples_per_s", o.samples_per_s);
  add("seconds_per_batch", o.seconds_per_batch);
  add("bits_per_value", o.bits_per_value);
  add("wire_bytes_per_step", o.wire_bytes_per_step);
  if (!o.bandwidth_MBps.empty()) line["bandwidth_MBps"] = o.bandwidth_MBps;
  if (!o.parts.empty()) line["parts"] = o.parts;
  add("parameters", o.parameters);
  return line.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

Result<std::vector<RunResult>> read_results(const std::string& path) {
  std::vector<RunResult> results;
  if (::access(path.c_str(), F_OK) != 0) return results;
  const auto content = read_file(path, kMostBytes);
  if (!content) return content.error();
  std::string_view text(reinterpret_cast<const char*>(content.value().data()), content.value().size());
  for (std::size_t number = 1; text.find('\n') != std::string_view::npos; ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() + 1);
    try {
      results.push_back(result_of(ordered_json::parse(line)));
    } catch (const ordered_json::exception& error) {
      return Error{ErrorCode::kBadFile, fmt::format("{}, line {}: {}", path, number, error.what())};
    }
  }
  return results;
}

Result<void> append_result(const std::string& path, const RunResult& result) {
  std::FILE* const file = std::fopen(path.c_str(), "a");
  const std::string line = to_line(result) + "\n";
  const bool good = file != nullptr && std::fwrite(line.data(), 1, line.size(), file) == line.size() && std::fflush(file) == 0 &&
                    ::fsync(::fileno(file)) == 0;
  if (file != nullptr) std::fclose(file);
  if (!good) return Error{ErrorCode::kIo, fmt::format("cannot write {}", path)};
  return {};
}

}  // namespace epipe::experiment
