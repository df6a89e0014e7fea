#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <string>

#include "epipe/base/clock.h"
#include "epipe/base/result.h"
#include "epipe/serve/token_file.h"

namespace epipe::serve {

// What a name has used since midnight UTC.
struct Usage {
  std::uint64_t bytes = 0;  // between its clients and their sessions, both ways
  double seconds = 0;       // on the device, see Sessions
};

// Usage by name, stored in a file that is replaced in one step, so that a restarted server continues counting. An invalid file is reported
// and replaced. One thread at a time.
//
//   {"day": 20775, "names": {"ann": [123456789, 3600.5]}}      day: days since 1970
class UsageBook {
 public:
  using Now = std::function<std::time_t()>;
  explicit UsageBook(
      std::string path, Now now = [] { return std::time(nullptr); });

  void add(const std::string& name, const Usage& more);
  Usage today(const std::string& name);
  std::time_t next_day() const;  // when counting restarts at 0
  // Writes changes: at most every 30 seconds, or `now`. A failed write is reported and retried.
  void save(bool now = false);

 private:
  void turn_page();

  const std::string path_;
  const Now now_;
  std::int64_t day_ = 0;
  std::map<std::string, Usage> names_;
  bool changed_ = false;
  bool failed_ = false;
  Stopwatch since_saved_;
};

struct UsagePage {
  std::int64_t day = 0;
  std::map<std::string, Usage> names{};
};
// For untrusted text: accepts only names that token files allow, and possible numbers.
Result<UsagePage> parse_usage(std::string_view text);

// Why the client may not continue today, and when it may again; empty: it may continue.
std::string quota_spent(const Client& client, const Usage& used, std::time_t again);

}  // namespace epipe::serve
