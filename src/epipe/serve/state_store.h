#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "epipe/base/clock.h"
#include "epipe/base/file.h"
#include "epipe/serve/config.h"

namespace epipe::serve {

bool is_session_name(std::string_view text);  // 32 hex digits
bool is_ticket(std::string_view text);        // 64 hex digits

// The state folder of a server: a folder per session, given only to holders of the session's ticket, and removed when it is too old, when
// its disk space is needed, or when the session has left nothing to continue.
//
//   folder/NAME/ticket          64 hex digits; the folder never exists without it
//   folder/NAME/checkpoints/    see session/checkpoint.h
//   folder/new-*, removed-*     being created, being removed
//
// Any thread may call. Only this user can read what is in it.
class StateStore {
 public:
  // Locks the folder for this object, and creates it if there is none. Throws std::runtime_error.
  StateStore(std::string folder, const StateLimits& limits, int max_sessions);

  // A session's folder, in use as long as this is held. Must be released before the store is destroyed.
  using Claim = std::shared_ptr<const std::string>;
  // The folder of this session, created if there is none. Throws transport::Refused if the ticket differs or cannot be checked; in that
  // case the log tells the operator what to do.
  Claim claim(const std::string& name, const std::string& ticket);
  // Whether it has a folder already.
  bool holds(const std::string& name) const;

  // Removes unused sessions beyond the limits and logs them. Call it often: it checks only when a session has ended, or after a minute.
  void clean();

  // The limit for the checkpoints of one session: its share of the total limit. 0: no limit.
  std::uint64_t session_bytes() const { return session_bytes_; }

 private:
  struct Ended;
  std::string path_of(const std::string& name) const { return folder_ + "/" + name; }
  void make(const std::string& name, const std::string& ticket) const;
  void release(const std::string& name);
  void retire_sessions();
  bool retire(const std::string& name) const;
  void remove_retired() const;

  std::string folder_;
  FolderLock lock_;
  std::uint64_t max_bytes_;
  double max_seconds_;
  std::uint64_t session_bytes_;
  std::mutex mutex_;                    // guards the members below, and the set of folders
  std::map<std::string, int> claimed_;  // number of claims; an ending session may be claimed again before its last claim is gone
  std::set<std::string> reported_;      // sessions with a damaged ticket already in the log
  bool ended_ = true;                   // since the last cleaning
  Stopwatch since_cleaning_;
};

}  // namespace epipe::serve
