#include "epipe/report/followed_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "epipe/report/metrics.h"

namespace epipe::report {
namespace {

constexpr std::size_t kMostAtOnce = std::size_t{32} << 20;  // bytes of metrics.jsonl; the rest is for the next time

bool is_there(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// At most kMostAtOnce bytes from `offset` on, whole lines only.
std::string lines_from(const std::string& path, std::int64_t offset) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  std::string text;
  std::array<char, 65536> buffer;
  while (text.size() < kMostAtOnce) {
    const ssize_t got = ::pread(file, buffer.data(), buffer.size(), offset + static_cast<std::int64_t>(text.size()));
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  ::close(file);
  text.resize(text.rfind('\n') + 1);  // npos + 1 is 0
  return text;
}

}  // namespace

FollowedRun::FileVersion FollowedRun::version_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return {status.st_ino, status.st_size, std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

FollowedRun::FollowedRun(const std::string& folder) {
  run_.folder = folder;
  run_.name = run_name(folder);
}

Result<FollowedRun> FollowedRun::open(const std::string& folder) {
  const auto holds = [&](const char* name) { return is_there(folder + "/" + name); };
  if (!is_there(folder)) return Error{ErrorCode::kIo, fmt::format("{} does not exist: expected the run directory of a training", folder)};
  if (!holds("metrics.jsonl") && !holds("config.toml") && !holds("session.json") && !holds("inspect.json")) {
    return Error{ErrorCode::kIo,
                 fmt::format("{} holds no run: expected the run directory of a training (`epipe train --run-dir`)", folder)};
  }
  FollowedRun run(folder);
  run.refresh();
  if (!run.problem_.empty()) return Error{ErrorCode::kBadFile, run.problem_};
  return run;
}

void FollowedRun::start_over() {
  run_.steps.clear();
  run_.epochs.clear();
  run_.audits.clear();
  run_.rate_changes.clear();
  run_.cut_metrics.clear();
  run_.worker_metrics.clear();
  read_bytes_ = 0;
  lines_ = 0;
  problem_.clear();
}

bool FollowedRun::read_new_lines() {
  const std::string path = run_.folder + "/metrics.jsonl";
  const FileVersion now = version_of(path);
  const bool replaced = now.inode != metrics_.inode || now.size < read_bytes_;  // a resumed run rewrites it
  metrics_ = now;
  if (replaced) start_over();
  if (!problem_.empty() || now.size <= read_bytes_) return replaced;
  const std::string text = lines_from(path, read_bytes_);
  Metrics metrics{std::move(run_.steps),  std::move(run_.epochs),      std::move(run_.cut_metrics), std::move(run_.worker_metrics), {},
                  std::move(run_.audits), std::move(run_.rate_changes)};
  if (const auto added = append_metrics(metrics, text, path, lines_ + 1); !added) problem_ = added.error().message;
  run_.steps = std::move(metrics.steps);
  run_.epochs = std::move(metrics.epochs);
  run_.audits = std::move(metrics.audits);
  run_.rate_changes = std::move(metrics.rate_changes);
  run_.cut_metrics = std::move(metrics.cut_metrics);
  run_.worker_metrics = std::move(metrics.worker_metrics);
  read_bytes_ += static_cast<std::int64_t>(text.size());
  lines_ += static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  return replaced || !text.empty();
}

bool FollowedRun::reread(FileVersion& known, const std::string& name, Result<void> (*read)(RunData&), std::string& problem) {
  const FileVersion now = version_of(run_.folder + "/" + name);
  if (now == known) return false;
  known = now;
  run_.notes.clear();  // its additions are kept until they are next written
  const auto done = read(run_);
  problem = !done ? done.error().message : run_.notes.empty() ? "" : run_.notes.back();
  return true;
}

void FollowedRun::write_notes() {
  run_.notes = notes_on(run_.steps);
  for (const std::string& problem : {problem_, trace_problem_, inspection_problem_, config_problem_}) {
    if (!problem.empty()) run_.notes.push_back(problem);
  }
}

bool FollowedRun::refresh() {
  bool changed = read_new_lines();
  changed = reread(trace_, "trace.json", read_trace, trace_problem_) || changed;
  changed = reread(inspection_, "inspect.json", read_inspection, inspection_problem_) || changed;
  changed = reread(config_, "config.toml", read_config, config_problem_) || changed;
  if (changed) write_notes();
  return changed;
}

}  // namespace epipe::report
