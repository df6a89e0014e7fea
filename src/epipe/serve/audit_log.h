#pragma once

#include <cstdint>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "epipe/base/clock.h"

namespace epipe::serve {

// Who did what on a server, when, and how much of it: a JSON object on a line of its own for each event, appended to a file of the server's
// user alone. A line that cannot be written (a full disk) is counted, and the first that can be is preceded by one with the count: the
// server goes on. Any thread.
//
//   {"time": "2026-11-18T14:40:00Z", "event": "session_end", "session": "1f2e3d4c...", "who": "ann", "steps": 120, ...}
class AuditLog {
 public:
  // Without a path nothing is written. Throws std::runtime_error where the file cannot be opened, or is none.
  explicit AuditLog(std::string path);
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // `fields`: an object of numbers, and of strings, which are made printable and cut to 200 bytes.
  void write(const char* event, const nlohmann::json& fields);
  // The file that has the path's name now: for who moved the old one away. Where there is none to open, the old one is written on.
  void reopen();
  std::uint64_t lost() const;  // lines, so far

 private:
  bool append(const std::string& line);

  const std::string path_;
  mutable std::mutex mutex_;  // guards what follows
  int fd_ = -1;
  bool torn_ = false;  // the file ends within a line
  std::uint64_t lost_ = 0;
  std::uint64_t unsaid_ = 0;  // of these, no line has told
  bool complained_ = false;
  Stopwatch since_complaint_;
};

// "2026-11-18T14:40:00Z"
std::string utc_text(std::int64_t seconds_since_1970);

}  // namespace epipe::serve
