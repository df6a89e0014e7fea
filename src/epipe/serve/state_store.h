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

// The state folder of a server: a folder per session, which only who shows the session's ticket gets, and which goes when it is too old,
// when the disk is needed for others, or when the session has left nothing to continue from.
//
//   folder/NAME/ticket          64 hex digits; with the folder from its first moment
//   folder/NAME/checkpoints/    see session/checkpoint.h
//   folder/new-*, removed-*     on the way to and from that
//
// Any thread may call. Only this user can read what is in it.
class StateStore {
 public:
  // Takes the folder for this object alone, and makes it if there is none. Throws std::runtime_error.
  StateStore(std::string folder, const StateLimits& limits, int max_sessions);

  // A session's folder, in use as long as somebody holds this. Whoever holds it ends before the store does.
  using Claim = std::shared_ptr<const std::string>;
  // The folder of this session, a new one where there is none. Throws transport::Refused where the ticket is another, or where the folder
  // does not tell: the log says what an operator can do about that.
  Claim claim(const std::string& name, const std::string& ticket);

  // Removes what nobody uses and is beyond the limits; the log says what. Call it often: it looks only when a session has ended, or after
  // a minute.
  void clean();

  // What the checkpoints of one session may take: its share of the limit on all. 0: no limit.
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
  std::mutex mutex_;                    // guards what follows, and which folders there are
  std::map<std::string, int> claimed_;  // how often; a session that ends may be claimed again before its last claim is gone
  std::set<std::string> reported_;      // sessions with a damaged ticket that the log knows of
  bool ended_ = true;                   // since the last cleaning
  Stopwatch since_cleaning_;
};

}  // namespace epipe::serve
