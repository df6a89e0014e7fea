#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "epipe/base/clock.h"

namespace epipe::serve {

// Reports refused clients and the reasons, with bounded output: the first of a host and reason at once, then the number of further ones
// once a minute. Any thread.
class RefusalLog {
 public:
  // `write` gets lines; `tell` gets the same in parts: who was refused, if known, why, and how often.
  using Tell = std::function<void(const std::string& who, const std::string& reason, int times)>;
  explicit RefusalLog(std::function<void(const std::string&)> write, Tell tell = {}) : write_(std::move(write)), tell_(std::move(tell)) {}

  // `peer` is "ipv4:HOST:PORT" or "HOST:PORT", after "NAME@" if the client has a name.
  void add(const std::string& peer, const std::string& reason);
  // Writes lines that are due; with `all`, everything.
  void flush(bool all = false);

 private:
  struct Count {
    Stopwatch since{};  // since the last line
    int more = 0;       // not reported yet
    std::string host{};
    std::string reason{};
  };
  void write_count(Count& count);

  const std::function<void(const std::string&)> write_;
  const Tell tell_;
  std::mutex mutex_;
  std::map<std::string, Count> counts_;  // by host and reason
};

}  // namespace epipe::serve
