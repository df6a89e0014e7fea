#pragma once

#include "epipe/train/registry.h"

namespace epipe::cli {

// Runs the program `epipe` with these arguments and returns its exit code. Ends the process itself, unless a sanitizer must still report.
int run_program(int argc, char** argv, const train::Registry& registry);

}  // namespace epipe::cli
