#pragma once

#include <atomic>
#include <string>
#include <vector>

namespace epipe::cli {

// Runs this program again with these arguments, in a process of its own whose output goes to the file `log`. Once `stop` is true it is
// asked to end in order, and waited for. Returns its exit code, 128 + n where signal n ended it. It ends with this process.
int run_self(const std::vector<std::string>& arguments, const std::string& log, const std::atomic<bool>& stop);

}  // namespace epipe::cli
