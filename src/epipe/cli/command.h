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

// Set by epipe launch for ranks that it restarts.
inline constexpr const char* kRestarted = "EPIPE_RESTARTED";

// Set by epipe launch for its ranks: the launch command up to the ranks' own command.
inline constexpr const char* kLaunch = "EPIPE_LAUNCH";

// An invalid flag value: exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Any other failure of the command: exit code 1.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Ends the program with this code; the reason has been printed already.
struct ExitCode {
  explicit ExitCode(int value) : code(value) {}
  int code;
};

// The value; throws Failure with the error's text.
template <typename T>
T value_or_fail(Result<T> result) {
  if (!result) throw Failure(result.error().text());
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

// Validators for flags: a finite number above 0, or at least 0.
CLI::Validator positive_number();
CLI::Validator number_from_zero();

// From now on only this user can read files created by this process and its children: weights, checkpoints, anything derived from data.
void keep_files_private();

// Every command adds its flags and a callback to the program. The registry has the known names and outlives the program.
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
