#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "epipe/cli/command.h"

namespace {

using namespace epipe::cli;

int run(int argc, char** argv) {
  CLI::App app("epipe trains neural networks cut into stages and compresses what crosses the cuts.", "epipe");
  app.set_version_flag("--version", EPIPE_VERSION);
  app.require_subcommand(1);
  app.set_config("--config", "", "Flags from a TOML file, such as a run's config.toml; flags given on the command line override it");
  app.failure_message([](const CLI::App* at, const CLI::Error& error) {
    return fmt::format("epipe: {}\nRun `{} --help` for what is possible.\n", error.what(), at->get_name());
  });
  add_train_command(app);
  add_eval_command(app);
  add_forward_command(app);
  add_codec_command(app);
  add_bench_command(app);
  add_info_command(app);
  add_schedule_command(app);
  add_report_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kWrongUsage;  // --help and --version count as success
  }
  return kOk;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const UsageError& error) {
    fmt::print(stderr, "epipe: {}\n", error.what());
    return kWrongUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "epipe: {}\n", error.what());
    return kFailed;
  }
}
