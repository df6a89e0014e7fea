#pragma once

#include "epipe/train/registry.h"

namespace epipe::cli {

// The program `epipe`: the exit code of what the arguments ask for, said on stdout and stderr. Ends the process itself, unless a sanitizer
// wants to have its say.
int run_program(int argc, char** argv, const train::Registry& registry);

}  // namespace epipe::cli
