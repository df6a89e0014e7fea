#pragma once

#include <string>

#include "epipe/cli/manual/command_tree.h"

namespace epipe::cli::manual {

// Scripts to complete commands, flags and their values: for bash (/usr/share/bash-completion/completions/epipe), zsh
// (/usr/share/zsh/vendor-completions/_epipe) and fish (/usr/share/fish/vendor_completions.d/epipe.fish).
std::string bash_completion(const Command& program);
std::string zsh_completion(const Command& program);
std::string fish_completion(const Command& program);

}  // namespace epipe::cli::manual
