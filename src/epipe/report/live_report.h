#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "epipe/report/followed_run.h"
#include "epipe/report/page.h"

namespace epipe::report {

// The page of runs that may be under way, drawn anew as they go on. One thread refreshes, any thread asks.
class LiveReport {
 public:
  // Throws nothing for the runs' content: what is wrong with it is on the page.
  explicit LiveReport(std::vector<FollowedRun> runs);

  // Reads what the runs have written since; whether anything on the page changed.
  bool refresh();
  std::string page() const;
  // Server-sent events "part" {"id", "html"}: all that changed since `seen`, with 0 everything.
  std::string events(std::uint64_t& seen) const;

 private:
  void draw();

  std::vector<FollowedRun> runs_;  // the refreshing thread's
  std::vector<RunData> shown_;     // likewise: lent to the drawing
  struct Part {
    PagePart part;
    std::uint64_t version = 0;  // when it changed last
  };
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Part> parts_;
  std::string page_;
  std::uint64_t version_ = 0;
};

}  // namespace epipe::report
