// epipe bench codec | pipeline | link | loop
#include "epipe/cli/bench/benches.h"
#include "epipe/cli/command.h"

namespace epipe::cli {

void add_bench_command(CLI::App& app) {
  auto* bench = app.add_subcommand("bench", "Benchmarks, each with its baseline in the same run");
  bench->require_subcommand(1);
  add_codec_bench(*bench);
  add_pipeline_bench(*bench);
  add_link_bench(*bench);
  add_loop_bench(*bench);
}

}  // namespace epipe::cli
