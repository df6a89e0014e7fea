#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <stdexcept>
#include <string>

#include "epipe/base/result.h"
#include "epipe/train/registry.h"

namespace epipe::cli {

// Exit codes of the program.
inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;
inline constexpr int kWrongUsage = 2;

// Set by epipe launch for ranks that it starts again.
inline constexpr const char* kRestarted = "EPIPE_RESTARTED";

// Set by epipe launch for its ranks: the command up to what each of them runs.
inline constexpr const char* kLaunch = "EPIPE_LAUNCH";

// A flag's value that makes no sense: exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Anything else that ends the command: exit code 1.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Ends the program with this code; why was said already.
struct ExitCode {
  explicit ExitCode(int value) : code(value) {}
  int code;
};

// The value, or Failure with the error's text.
template <typename T>
T value_or_fail(Result<T> result) {
  if (!result) throw Failure(result.error().text());
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

// Checks of flags: a finite number above 0, or 0 and above.
CLI::Validator positive_number();
CLI::Validator number_from_zero();

// What this process and its children make from now on is for this user's eyes: weights, checkpoints, and whatever tells about data.
void keep_files_private();

// Every command adds its flags and a callback to the program. What it knows by name is in the registry, which outlives the program.
void add_codec_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_forward_command(CLI::App& app, const train::Registry& registry);
void add_generate_command(CLI::App& app, const train::Registry& registry);
void add_info_command(CLI::App& app, const train::Registry& registry);
void add_schedule_command(CLI::App& app);
void add_plan_command(CLI::App& app, const train::Registry& registry);
void add_train_command(CLI::App& app, const train::Registry& registry);
void add_eval_command(CLI::App& app, const train::Registry& registry);
void add_report_command(CLI::App& app);
void add_watch_command(CLI::App& app);
void add_doctor_command(CLI::App& app);
void add_serve_command(CLI::App& app, const train::Registry& registry);
void add_launch_command(CLI::App& app);
void add_data_command(CLI::App& app);
void add_experiment_command(CLI::App& app);
void add_inspect_command(CLI::App& app, const train::Registry& registry);

}  // namespace epipe::cli
