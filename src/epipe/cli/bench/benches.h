#pragma once

#include <CLI/CLI.hpp>

namespace epipe::cli {

// The parts of `epipe bench`.
void add_codec_bench(CLI::App& bench);
void add_pipeline_bench(CLI::App& bench);
void add_link_bench(CLI::App& bench);
void add_loop_bench(CLI::App& bench);

}  // namespace epipe::cli
