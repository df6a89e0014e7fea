#pragma once

#include <optional>
#include <string>

#include "epipe/base/file.h"

namespace epipe::cli {

// The folder of a run, locked until this process ends. A start that fails before it has trained a step leaves nothing behind: everything
// it created is removed, including new parent folders. Other content stays, and so do the folders around it.
class RunFolder {
 public:
  // Throws Failure if it cannot be created, or another process uses it.
  explicit RunFolder(std::string path);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

 private:
  bool holds_work() const;
  void remove_empty() const;

  std::string path_;
  std::string first_made_;          // the topmost new folder; empty: all existed
  std::optional<FolderLock> lock_;  // always set
};

}  // namespace epipe::cli
