#include "epipe/cli/program.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "epipe/base/cpu_level.h"
#include "epipe/cli/command.h"
#include "epipe/cli/usage.h"

namespace epipe::cli {
namespace {

// Every step allocates the same tensors again. glibc returns large ones to the system each time, and each page costs a fault: keeping them
// makes a step of mobilenet_v2 (224 px, batch 8, one thread) take 0.49 s instead of 0.65 s, for 12 % more memory.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_ARENA_MAX, 1);
#endif
}

// Reports a wrong EPIPE_CPU at once, not with the first frame.
void check_environment() {
  try {
    cpu_level_limit();
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

// Adds the names this program knows to a command's help.
void list_known_names(CLI::App& command, const train::Registry& registry) {
  if (auto* const model = command.get_option_no_throw("--model")) {
    model->description(fmt::format("Network: {}", fmt::join(registry.models.names(), ", ")));
  }
  if (auto* const data = command.get_option_no_throw("--data")) {
    data->description(fmt::format("{}; docs/data.md describes each", fmt::join(registry.data.specs(), ", ")));
  }
  if (auto* const loss = command.get_option_no_throw("--loss")) {
    loss->description(fmt::format("{}; auto: cross entropy of classes, squared error of values", fmt::join(registry.losses.names(), ", ")));
  }
}

int run(int argc, char** argv, const train::Registry& registry) {
  check_environment();
  CLI::App app("epipe trains neural networks cut into stages and compresses what crosses the cuts.", "epipe");
  app.set_version_flag("--version", EPIPE_VERSION);
  app.require_subcommand(1);
  app.set_config("--config", "", "Flags from a TOML file, such as a run's config.toml; flags given on the command line override it");
  app.allow_config_extras(CLI::config_extras_mode::error);
  add_train_command(app, registry);
  add_eval_command(app, registry);
  add_generate_command(app, registry);
  add_serve_command(app, registry);
  add_launch_command(app);
  add_forward_command(app, registry);
  add_codec_command(app);
  add_bench_command(app);
  add_info_command(app, registry);
  add_schedule_command(app);
  add_plan_command(app, registry);
  add_report_command(app);
  add_watch_command(app);
  add_doctor_command(app);
  add_data_command(app);
  add_experiment_command(app);
  add_inspect_command(app, registry);
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  for (auto* const command : commands) list_known_names(*command, registry);
  const auto is_named = [&](const CLI::App* command) { return command->check_name(argv[1]); };
  if (argc > 1 && argv[1][0] != '-' && std::none_of(commands.begin(), commands.end(), is_named)) {
    std::vector<std::string> names;
    for (const CLI::App* const command : commands) names.push_back(command->get_name());
    const std::string meant = nearest(argv[1], names);
    throw UsageError(fmt::format("there is no command {}{}; epipe --help lists them", argv[1],
                                 meant.empty() ? "" : fmt::format("; did you mean {}?", meant)));
  }
  share_config(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& answered) {  // --help and --version
    return app.exit(answered);
  } catch (const CLI::ParseError& error) {
    throw UsageError(explanation(app, error, {argv + 1, argv + argc}));
  }
  return kOk;
}

int result_of(int argc, char** argv, const train::Registry& registry) {
  try {
    return run(argc, argv, registry);
  } catch (const ExitCode& exit) {
    return exit.code;
  } catch (const UsageError& error) {
    fmt::print(stderr, "epipe: {}\n", error.what());
    return kWrongUsage;
  } catch (const c10::Error& error) {
    fmt::print(stderr, "epipe: {}\n", error.what_without_backtrace());
    return kFailed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "epipe: {}\n", error.what());
    return kFailed;
  }
}

// Skips the destructors of libraries' static objects: a gRPC thread may be in a handshake with a peer that does not answer, and would find
// OpenSSL gone. All our own work is done by now. With sanitizers it exits normally, because they check at exit.
[[noreturn]] void leave(int code) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  std::exit(code);
#else
  std::fflush(nullptr);
  std::_Exit(code);
#endif
}

}  // namespace

int run_program(int argc, char** argv, const train::Registry& registry) {
  keep_freed_memory();
  leave(result_of(argc, argv, registry));
}

}  // namespace epipe::cli
