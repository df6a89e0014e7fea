#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "epipe/report/run_data.h"

namespace epipe::report {

// Reads a run directory as it grows: only the new lines of metrics.jsonl, and other files when they are replaced.
class FollowedRun {
 public:
  // An error if the folder does not hold a run: neither the first files `epipe train` writes nor later ones.
  static Result<FollowedRun> open(const std::string& folder);

  // Reads new data; returns whether there was any.
  bool refresh();
  const RunData& data() const { return run_; }
  RunData& data() { return run_; }

 private:
  explicit FollowedRun(const std::string& folder);
  struct FileVersion {
    ino_t inode = 0;
    std::int64_t size = -1;
    std::int64_t changed_ns = 0;
    bool operator==(const FileVersion&) const = default;
  };
  static FileVersion version_of(const std::string& path);
  bool read_new_lines();
  bool reread(FileVersion& known, const std::string& name, Result<void> (*read)(RunData&), std::string& problem);
  void start_over();
  void write_notes();

  RunData run_;
  FileVersion metrics_;
  std::int64_t read_bytes_ = 0;  // of metrics.jsonl, whole lines
  std::size_t lines_ = 0;
  std::string problem_;  // an invalid line; nothing after it is read until the file is replaced
  FileVersion trace_;
  FileVersion inspection_;
  FileVersion config_;
  std::string trace_problem_;
  std::string inspection_problem_;
  std::string config_problem_;
};

}  // namespace epipe::report
