#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "epipe/transport/link.h"

namespace epipe::serve {

// Holds the data channels opened by other processes until the session takes them.
class ChannelBroker {
 public:
  struct Key {
    std::uint64_t attempt = 0;
    int cut = 0;
    int from = 0;
    auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr): there is none
  };

  // Closes channels left from earlier attempts.
  void put(const Key& key, std::unique_ptr<transport::Link> link);
  // Throws TimedOut, or ConnectionLost between give_up() and begin().
  std::unique_ptr<transport::Link> take(const Key& key, transport::Timeout timeout);
  // The client has begun another attempt: nobody will open the channels that take() waits for now or later.
  void give_up() { set_over(true); }
  // The session now handles that attempt.
  void begin() { set_over(false); }

 private:
  void set_over(bool over);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, std::unique_ptr<transport::Link>> waiting_;
  bool over_ = false;
};

}  // namespace epipe::serve
