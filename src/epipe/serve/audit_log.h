#pragma once

#include <cstdint>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "epipe/base/clock.h"

namespace epipe::serve {

// Who did what on a server, when, and how much: one JSON object per line and event, appended to a file that only the server's user can
// read. If a line cannot be written (a full disk), the server goes on; lost lines are counted, and the next line that can be written is
// preceded by one with the count. Any thread.
//
//   {"time": "2026-11-18T14:40:00Z", "event": "session_end", "session": "1f2e3d4c...", "who": "ann", "steps": 120, ...}
class AuditLog {
 public:
  // Writes nothing if the path is empty. Throws std::runtime_error if the file cannot be opened or is not a regular file.
  explicit AuditLog(std::string path);
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // `fields`: an object of numbers, and of strings, which are made printable and cut to 200 bytes.
  void write(const char* event, const nlohmann::json& fields);
  // Opens the file at the path again, after log rotation. If that fails, it goes on with the old file.
  void reopen();
  std::uint64_t lost() const;  // lines, so far

 private:
  bool append(const std::string& line);

  const std::string path_;
  mutable std::mutex mutex_;  // guards the members below
  int fd_ = -1;
  bool torn_ = false;  // the file ends in the middle of a line
  std::uint64_t lost_ = 0;
  std::uint64_t unsaid_ = 0;  // of these, not reported yet
  bool complained_ = false;
  Stopwatch since_complaint_;
};

// "2026-11-18T14:40:00Z"
std::string utc_text(std::int64_t seconds_since_1970);

}  // namespace epipe::serve
