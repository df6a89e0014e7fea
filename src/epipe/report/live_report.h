#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "epipe/report/followed_run.h"
#include "epipe/report/page.h"

namespace epipe::report {

// The page for runs that may still be going on, redrawn as they progress. One thread calls refresh(), any thread reads.
class LiveReport {
 public:
  // Does not throw for invalid content: the page shows the problem.
  explicit LiveReport(std::vector<FollowedRun> runs);

  // Reads new data of the runs; returns whether anything on the page changed.
  bool refresh();
  std::string page() const;
  // Server-sent events "part" {"id", "html"}: all parts that changed since `seen`; with 0, all parts.
  std::string events(std::uint64_t& seen) const;

 private:
  void draw();

  std::vector<FollowedRun> runs_;  // used only by the refreshing thread
  std::vector<RunData> shown_;     // likewise: holds the runs' data while drawing
  struct Part {
    PagePart part;
    std::uint64_t version = 0;  // when it changed last
  };
  mutable std::mutex mutex_;  // guards the members below
  std::vector<Part> parts_;
  std::string page_;
  std::uint64_t version_ = 0;
};

}  // namespace epipe::report
