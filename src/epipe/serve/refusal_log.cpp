#include "epipe/serve/refusal_log.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>
#include <utility>

namespace epipe::serve {
namespace {

constexpr double kSeconds = 60;        // between two lines about the same host and reason
constexpr std::size_t kHosts = 1000;   // that are told apart; those above count as "other hosts"
constexpr std::size_t kReasons = 100;  // that are told apart for these

// Without the port, which is another for every connection.
std::string host_of(std::string_view peer) {
  for (const std::string_view prefix : {"ipv4:", "ipv6:"}) {
    if (peer.starts_with(prefix)) peer.remove_prefix(prefix.size());
  }
  const auto colon = peer.rfind(':');
  return std::string(colon == std::string_view::npos ? peer : peer.substr(0, colon));
}

}  // namespace

void RefusalLog::add(const std::string& peer, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  std::string who = fmt::format("{}: {}", host_of(peer), reason);
  if (!counts_.contains(who) && counts_.size() >= kHosts) who = "other hosts: " + reason;
  if (!counts_.contains(who) && counts_.size() >= kHosts + kReasons) who = "other hosts, other reasons";
  const auto [found, is_new] = counts_.try_emplace(who);
  if (is_new) {
    write_(fmt::format("refused {}: {}", peer, reason));
  } else {
    ++found->second.more;
    if (found->second.since.seconds() > kSeconds) write_count(who, found->second);
  }
}

void RefusalLog::flush(bool all) {
  const std::lock_guard lock(mutex_);
  for (auto entry = counts_.begin(); entry != counts_.end();) {
    const auto next = std::next(entry);
    auto& [who, count] = *entry;
    const bool due = all || count.since.seconds() > kSeconds;
    if (due && count.more > 0) {
      write_count(who, count);
    } else if (due) {
      counts_.erase(entry);  // the next one of this host is new again
    }
    entry = next;
  }
}

void RefusalLog::write_count(const std::string& who, Count& count) {
  write_(fmt::format("refused {} more times in {:.0f} s: {}", std::exchange(count.more, 0), count.since.seconds(), who));
  count.since = Stopwatch();
}

}  // namespace epipe::serve
