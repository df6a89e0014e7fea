#include "epipe/cli/experiment/runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "epipe/base/file.h"
#include "epipe/cli/command.h"
#include "epipe/cli/experiment/child.h"
#include "epipe/session/checkpoint.h"

namespace epipe::cli {
namespace {

using experiment::Call;
using experiment::Entry;
using experiment::Kind;
using experiment::RunResult;

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

std::string text_in(const std::string& path) {
  const auto content = read_file(path, kMostBytes);
  if (!content) return "";
  return {reinterpret_cast<const char*>(content.value().data()), content.value().size()};
}

// FNV-1a, so that a run's folder is found again.
std::string hash_of(const std::string& text) {
  std::uint32_t hash = 2166136261U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return fmt::format("{:08x}", hash);
}

// The last line that is not blank.
std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of(" \r\n");
  if (end == std::string::npos) return "it printed nothing";
  const std::size_t begin = text.find_last_of("\r\n", end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

std::string data_name(const std::string& folder) { return folder.empty() ? "" : folder.substr(folder.find_last_of('/') + 1); }

class Runner {
 public:
  Runner(const RunnerConfig& config, const std::atomic<bool>& stop)
      : config_(config), stop_(stop), results_(config.out + "/results.jsonl") {
    if (config_.dry_run) return;
    value_or_fail(make_folders(config_.out));
    done_ = value_or_fail(experiment::read_results(results_));
  }

  void run(const Entry& entry) {
    const auto call = experiment::call_of(entry, config_.settings, config_.machine);
    if (const auto* const not_run = std::get_if<experiment::NotRun>(&call)) {
      fmt::print("{}: not run: {}\n", entry.id, not_run->reason);
      return;
    }
    const int seeds = entry.kind == Kind::kParameters ? 1 : config_.seeds;
    for (int s = 0; s < seeds && !stop_; ++s) run_seed(entry, std::get<Call>(call), config_.first_seed + static_cast<std::uint64_t>(s));
  }
  int failures() const { return failures_; }

 private:
  void run_seed(const Entry& entry, const Call& call, std::uint64_t seed) {
    RunResult result = planned(entry, call, seed);
    const auto words = words_of(entry, call, result);
    if (config_.dry_run) {
      fmt::print("epipe {}\n", fmt::join(words, " "));
      return;
    }
    if (is_done(result)) {
      fmt::print("{} seed {}: already there\n", entry.id, seed);
      return;
    }
    fmt::print("{} seed {}: running, log in {}/{}/log.txt\n", entry.id, seed, config_.out, result.folder);
    std::fflush(stdout);
    const std::string folder = config_.out + "/" + result.folder;
    value_or_fail(make_folders(folder));
    const int code = run_self(words, folder + "/log.txt", stop_);
    if (code == 0 && stop_ && entry.kind != Kind::kParameters && !experiment::ends_with_epoch(text_in(folder + "/metrics.jsonl"))) {
      fmt::print("{} seed {}: stopped; the same command continues from there\n", entry.id, seed);
      return;
    }
    finish(entry, folder, code, std::move(result));
  }

  RunResult planned(const Entry& entry, const Call& call, std::uint64_t seed) const {
    RunResult result;
    result.id = entry.same_as;
    result.seed = seed;
    result.settings = experiment::settings_text(config_.settings, call);
    result.command = fmt::format("{}", fmt::join(call.words, " "));
    result.data = data_name(call.data);
    result.folder = fmt::format("{}-{}-s{}", entry.same_as, hash_of(result.command), seed);
    return result;
  }

  std::vector<std::string> words_of(const Entry& entry, const Call& call, const RunResult& result) const {
    std::vector<std::string> words = call.words;
    if (entry.kind == Kind::kParameters) return words;
    const std::string folder = config_.out + "/" + result.folder;
    words.insert(words.end(), {"--seed", fmt::to_string(result.seed), "--run-dir", folder});
    if (!session::Checkpoints(folder + "/checkpoints").steps().empty()) words.emplace_back("--resume");
    return words;
  }

  bool is_done(const RunResult& wanted) const {
    return std::any_of(done_.begin(), done_.end(), [&](const RunResult& r) {
      return r.failed.empty() && r.id == wanted.id && r.seed == wanted.seed && r.command == wanted.command;
    });
  }

  void finish(const Entry& entry, const std::string& folder, int code, RunResult result) {
    const std::string log = text_in(folder + "/log.txt");
    if (code == 0) {
      auto outcome = entry.kind == Kind::kParameters ? experiment::outcome_of_info(log)
                                                     : experiment::outcome_of_metrics(text_in(folder + "/metrics.jsonl"));
      if (!outcome) {
        result.failed = outcome.error().message;
      } else {
        result.outcome = std::move(outcome).value();
      }
    } else {
      result.failed = last_line(log);
    }
    if (!result.failed.empty()) ++failures_;
    value_or_fail(experiment::append_result(results_, result));
    fmt::print("{} seed {}: {}\n", entry.id, result.seed, result.failed.empty() ? shown(result.outcome) : "failed: " + result.failed);
    std::fflush(stdout);
    done_.push_back(std::move(result));
  }

  using Outcome = experiment::Outcome;
  static std::string shown(const Outcome& o) {
    if (o.parameters >= 0) return fmt::format("{:.0f} parameters", o.parameters);
    return fmt::format("{} {:.4f}, {:.1f} samples/s", o.metric, o.value, o.samples_per_s);
  }

  const RunnerConfig& config_;
  const std::atomic<bool>& stop_;
  std::string results_;
  std::vector<RunResult> done_;
  int failures_ = 0;
};

}  // namespace

int run_experiments(const std::vector<Entry>& entries, const RunnerConfig& config, const std::atomic<bool>& stop) {
  Runner runner(config, stop);
  for (const Entry& entry : entries) {
    if (stop) break;
    runner.run(entry);
  }
  return runner.failures();
}

}  // namespace epipe::cli
