#include "epipe/serve/refusal_log.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>
#include <utility>

namespace epipe::serve {
namespace {

constexpr double kSeconds = 60;        // between two lines about the same host and reason
constexpr std::size_t kHosts = 1000;   // counted separately; further ones count as "other hosts"
constexpr std::size_t kReasons = 100;  // counted separately for these

// Without the port, which differs for every connection: "127.0.0.1", "ann@127.0.0.1".
std::string host_of(std::string_view peer) {
  const auto at = peer.find('@');
  const std::string name(at == std::string_view::npos ? "" : peer.substr(0, at + 1));
  peer.remove_prefix(name.size());
  for (const std::string_view prefix : {"ipv4:", "ipv6:"}) {
    if (peer.starts_with(prefix)) peer.remove_prefix(prefix.size());
  }
  return name + std::string(peer.substr(0, peer.rfind(':')));
}

}  // namespace

void RefusalLog::add(const std::string& peer, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  Count first{.host = host_of(peer), .reason = reason};
  const auto key = [&] { return first.host + ": " + first.reason; };
  if (!counts_.contains(key()) && counts_.size() >= kHosts) first.host = "other hosts";
  if (!counts_.contains(key()) && counts_.size() >= kHosts + kReasons) first.reason = "other reasons";
  const auto [found, is_new] = counts_.try_emplace(key(), first);
  if (is_new) {
    write_(fmt::format("refused {}: {}", peer, reason));
    if (tell_) tell_(peer, reason, 1);
  } else {
    ++found->second.more;
    if (found->second.since.seconds() > kSeconds) write_count(found->second);
  }
}

void RefusalLog::flush(bool all) {
  const std::lock_guard lock(mutex_);
  for (auto entry = counts_.begin(); entry != counts_.end();) {
    const auto next = std::next(entry);
    Count& count = entry->second;
    const bool due = all || count.since.seconds() > kSeconds;
    if (due && count.more > 0) {
      write_count(count);
    } else if (due) {
      counts_.erase(entry);  // this host's next one counts as new
    }
    entry = next;
  }
}

void RefusalLog::write_count(Count& count) {
  const int more = std::exchange(count.more, 0);
  write_(fmt::format("refused {} more times in {:.0f} s: {}: {}", more, count.since.seconds(), count.host, count.reason));
  if (tell_) tell_(count.host, count.reason, more);
  count.since = Stopwatch();
}

}  // namespace epipe::serve
