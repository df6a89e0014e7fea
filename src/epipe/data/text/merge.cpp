#include "epipe/data/text/merge.h"

#include <cstddef>
#include <queue>
#include <tuple>

namespace epipe::data {
namespace {

constexpr std::size_t kNone = ~std::size_t{0};

// The tokens as a list; one that was merged into the one before it is not alive.
struct Link {
  std::int32_t token;
  std::size_t previous;
  std::size_t next;
  bool alive;
};

struct Candidate {
  std::uint32_t rank;
  std::size_t left;
  std::int32_t left_token;  // stale when the list holds another one by now
  std::int32_t right_token;
  std::int32_t merged;
};

struct Later {
  bool operator()(const Candidate& a, const Candidate& b) const { return std::tie(a.rank, a.left) > std::tie(b.rank, b.left); }
};

class Merger {
 public:
  Merger(const MergeTable& table, const std::vector<std::int32_t>& tokens) : table_(table) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      links_.push_back({tokens[i], i == 0 ? kNone : i - 1, i + 1 < tokens.size() ? i + 1 : kNone, true});
    }
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) offer(i);
  }

  void run() {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const Link& left = links_[best.left];
      const bool fresh = left.alive && left.next != kNone && left.token == best.left_token && links_[left.next].token == best.right_token;
      if (fresh) apply(best);
    }
  }

  void copy_to(std::vector<std::int32_t>& tokens) const {
    tokens.clear();
    for (const Link& link : links_) {
      if (link.alive) tokens.push_back(link.token);
    }
  }

 private:
  void offer(std::size_t left) {
    const std::size_t right = links_[left].next;
    if (right == kNone) return;
    const Merge* const merge = table_.find(links_[left].token, links_[right].token);
    if (merge != nullptr) queue_.push({merge->rank, left, links_[left].token, links_[right].token, merge->token});
  }

  void apply(const Candidate& best) {
    Link& left = links_[best.left];
    Link& right = links_[left.next];
    left.token = best.merged;
    right.alive = false;
    left.next = right.next;
    if (left.next != kNone) links_[left.next].previous = best.left;
    if (left.previous != kNone) offer(left.previous);
    offer(best.left);
  }

  const MergeTable& table_;
  std::vector<Link> links_;
  std::priority_queue<Candidate, std::vector<Candidate>, Later> queue_;
};

}  // namespace

void merge_tokens(const MergeTable& table, std::vector<std::int32_t>& tokens) {
  if (tokens.size() < 2) return;
  Merger merger(table, tokens);
  merger.run();
  merger.copy_to(tokens);
}

}  // namespace epipe::data
