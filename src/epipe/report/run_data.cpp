#include "epipe/report/run_data.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <memory>

#include "epipe/base/file.h"
#include "epipe/report/inspection.h"
#include "epipe/report/metrics.h"
#include "epipe/report/trace.h"

namespace epipe::report {
namespace {

constexpr std::uint64_t kMostMetrics = std::uint64_t{2} << 30;
constexpr std::uint64_t kMostTrace = std::uint64_t{1} << 30;
constexpr std::uint64_t kMostInspection = std::uint64_t{64} << 20;
constexpr std::uint64_t kMostConfig = std::uint64_t{128} << 10;
constexpr std::string_view kExpected = "expected the run directory of a training (`epipe train --run-dir`)";

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

Result<std::string> read_text(const std::string& path, std::uint64_t max_bytes) {
  const auto content = read_file(path, max_bytes);
  if (!content) return content.error();
  return std::string(reinterpret_cast<const char*>(content.value().data()), content.value().size());
}

Result<void> read_metrics(RunData& run) {
  const std::string path = run.folder + "/metrics.jsonl";
  const auto text = read_text(path, kMostMetrics);
  if (!text) return text.error();
  auto metrics = parse_metrics(text.value(), path);
  if (!metrics) return metrics.error();
  run.steps = std::move(metrics.value().steps);
  run.epochs = std::move(metrics.value().epochs);
  run.audits = std::move(metrics.value().audits);
  run.rate_changes = std::move(metrics.value().rate_changes);
  run.cut_metrics = std::move(metrics.value().cut_metrics);
  run.worker_metrics = std::move(metrics.value().worker_metrics);
  run.notes = std::move(metrics.value().notes);
  return {};
}

}  // namespace

// The last part of the folder's full path, so that "." has a name as well.
std::string run_name(const std::string& folder) {
  const std::unique_ptr<char, decltype(&std::free)> full(::realpath(folder.c_str(), nullptr), &std::free);
  const std::string path = full ? full.get() : folder;
  const std::size_t slash = path.find_last_of('/');
  const std::string last = slash == std::string::npos ? path : path.substr(slash + 1);
  return last.empty() ? path : last;
}

Result<void> read_trace(RunData& run) {
  const std::string path = run.folder + "/trace.json";
  if (!exists(path)) return {};
  const auto text = read_text(path, kMostTrace);
  if (!text) return text.error();
  auto read = parse_trace(text.value(), path);
  if (!read) return read.error();
  if (!read.value().complete) run.notes.push_back(fmt::format("{} ends early: the timeline shows what was written.", path));
  run.trace = std::move(read.value().trace);
  return {};
}

Result<void> read_inspection(RunData& run) {
  const std::string path = run.folder + "/inspect.json";
  if (!exists(path)) return {};
  const auto text = read_text(path, kMostInspection);
  if (!text) return text.error();
  auto read = parse_inspection(text.value(), path);
  if (!read) return read.error();
  run.inspection = std::move(read).value();
  return {};
}

Result<void> read_config(RunData& run) {
  const std::string path = run.folder + "/config.toml";
  if (!exists(path)) return {};
  auto text = read_text(path, kMostConfig);
  if (!text) return text.error();
  run.config = std::move(text).value();
  return {};
}

Result<RunData> read_run(const std::string& folder) {
  if (!exists(folder)) return Error{ErrorCode::kIo, fmt::format("{} does not exist: {}", folder, kExpected)};
  if (!is_folder(folder)) return Error{ErrorCode::kIo, fmt::format("{} is not a folder: {}", folder, kExpected)};
  const bool trained = exists(folder + "/metrics.jsonl");
  if (!trained && !exists(folder + "/inspect.json"))
    return Error{ErrorCode::kIo, fmt::format("{} has no metrics.jsonl: {}", folder, kExpected)};
  RunData run;
  run.folder = folder;
  run.name = run_name(folder);
  if (trained) EPIPE_TRY(read_metrics(run));
  EPIPE_TRY(read_trace(run));
  EPIPE_TRY(read_inspection(run));
  EPIPE_TRY(read_config(run));
  return run;
}

}  // namespace epipe::report
