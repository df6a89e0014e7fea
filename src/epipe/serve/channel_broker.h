#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "epipe/transport/link.h"

namespace epipe::serve {

// Holds the data channels that other processes opened, until the session asks for them.
class ChannelBroker {
 public:
  struct Key {
    std::uint64_t attempt = 0;
    int cut = 0;
    int from = 0;
    auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr): there is none
  };

  // Closes what is left of earlier attempts.
  void put(const Key& key, std::unique_ptr<transport::Link> link);
  // Throws TimedOut, or ConnectionLost between give_up() and begin().
  std::unique_ptr<transport::Link> take(const Key& key, transport::Timeout timeout);
  // Nobody will open the channels that take() waits for or is about to: the client began another attempt.
  void give_up() { set_over(true); }
  // That one is served.
  void begin() { set_over(false); }

 private:
  void set_over(bool over);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, std::unique_ptr<transport::Link>> waiting_;
  bool over_ = false;
};

}  // namespace epipe::serve
