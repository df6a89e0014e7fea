#pragma once

#include <atomic>
#include <string>
#include <vector>

namespace epipe::cli {

// Runs this program again with these arguments, as a child process whose output goes to the file `log`. When `stop` becomes true, asks it
// to end and waits for it. Returns its exit code, or 128 + n if signal n ended it. It ends with this process.
int run_self(const std::vector<std::string>& arguments, const std::string& log, const std::atomic<bool>& stop);

}  // namespace epipe::cli
