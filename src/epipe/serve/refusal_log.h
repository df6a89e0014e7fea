#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "epipe/base/clock.h"

namespace epipe::serve {

// Says who was turned away and why, however many there are: the first of a host and reason at once, then how many more there were, once a
// minute. Any thread.
class RefusalLog {
 public:
  // `write` gets lines; `tell` the same in parts: who was refused, as far as it is known, why, and how often.
  using Tell = std::function<void(const std::string& who, const std::string& reason, int times)>;
  explicit RefusalLog(std::function<void(const std::string&)> write, Tell tell = {}) : write_(std::move(write)), tell_(std::move(tell)) {}

  // `peer` is "ipv4:HOST:PORT" or "HOST:PORT", after "NAME@" where the client has a name.
  void add(const std::string& peer, const std::string& reason);
  // Writes what is due, or at the end all that is left.
  void flush(bool all = false);

 private:
  struct Count {
    Stopwatch since{};  // the last line
    int more = 0;       // that no line has told of
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
