#pragma once

#include <optional>
#include <string>

#include "epipe/base/file.h"

namespace epipe::cli {

// The folder of a run, kept from other processes until this one ends. A start that fails before it trained a step leaves nothing behind:
// what this made is removed again, up to the first folder that was there before. Content that is not a start's own stays, and so does
// every folder around it.
class RunFolder {
 public:
  // Throws Failure where it cannot be made, or another process is at work in it.
  explicit RunFolder(std::string path);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

 private:
  bool holds_work() const;
  void remove_empty() const;

  std::string path_;
  std::string first_made_;          // the topmost folder that was not there; empty: all were
  std::optional<FolderLock> lock_;  // always there
};

}  // namespace epipe::cli
