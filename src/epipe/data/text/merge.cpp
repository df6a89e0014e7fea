#include "epipe/data/text/merge.h"

#include <cstddef>
#include <functional>
#include <queue>
#include <tuple>
#include <unordered_map>

namespace epipe::data {
namespace {

using Index = std::uint32_t;  // of a token in its word; a word may be as long as a text of some gigabytes
constexpr Index kNone = ~Index{0};
constexpr std::size_t kLongWord = 256;  // tokens; from here on lists of ranks are faster than one heap

// The tokens as a list; a token that was merged into the one before it is dead.
constexpr std::int32_t kDead = -1;
struct Link {
  std::int32_t token;
  Index previous;
  Index next;
};

// 16 bytes: there is one for each pair of a long word.
struct Candidate {
  std::uint32_t rank;
  Index left;
  std::int32_t left_token;  // the candidate is stale if the list has another token there by now
  std::int32_t right_token;
};

struct Later {
  bool operator()(const Candidate& a, const Candidate& b) const { return std::tie(a.rank, a.left) > std::tie(b.rank, b.left); }
};

using Heap = std::priority_queue<Candidate, std::vector<Candidate>, Later>;

// The same order, for long words: they have many candidates of few ranks, and those of a rank mostly come from left to right. A list for
// each rank takes them as they come; a heap has the others. So one letter, repeated, takes time in proportion to its length.
class RankLists {
 public:
  bool empty() const { return ranks_.empty(); }

  void push(const Candidate& candidate) {
    List& list = lists_[candidate.rank];
    if (list.empty()) ranks_.push(candidate.rank);
    const bool in_order = list.next == list.items.size() || list.items.back().left <= candidate.left;
    in_order ? list.items.push_back(candidate) : list.late.push(candidate);
  }

  const Candidate& top() const {
    const List& list = lists_.at(ranks_.top());
    return list.late_is_first() ? list.late.top() : list.items[list.next];
  }

  void pop() {
    const auto found = lists_.find(ranks_.top());
    List& list = found->second;
    list.late_is_first() ? list.late.pop() : static_cast<void>(++list.next);
    if (!list.empty()) return;
    lists_.erase(found);
    ranks_.pop();
  }

 private:
  struct List {
    std::vector<Candidate> items;  // from left to right, those before `next` are gone
    std::size_t next = 0;
    Heap late;
    bool empty() const { return next == items.size() && late.empty(); }
    bool late_is_first() const { return next == items.size() || (!late.empty() && late.top().left < items[next].left); }
  };

  std::unordered_map<std::uint32_t, List> lists_;  // none is empty
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ranks_;
};

template <typename Queue>
class Merger {
 public:
  Merger(const MergeTable& table, const std::vector<std::int32_t>& tokens) : table_(table) {
    const auto count = static_cast<Index>(tokens.size());
    links_.reserve(count);
    for (Index i = 0; i < count; ++i) links_.push_back({tokens[i], i == 0 ? kNone : i - 1, i + 1 < count ? i + 1 : kNone});
    for (Index i = 0; i + 1 < count; ++i) offer(i);
  }

  void run() {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const Link& left = links_[best.left];
      const bool fresh = left.token == best.left_token && left.next != kNone && links_[left.next].token == best.right_token;
      if (fresh) apply(best);
    }
  }

  void copy_to(std::vector<std::int32_t>& tokens) const {
    tokens.clear();
    for (Index i = 0; i != kNone; i = links_[i].next) tokens.push_back(links_[i].token);
  }

 private:
  void offer(Index left) {
    const Index right = links_[left].next;
    if (right == kNone) return;
    const Merge* const merge = table_.find(links_[left].token, links_[right].token);
    if (merge != nullptr) queue_.push({merge->rank, left, links_[left].token, links_[right].token});
  }

  void apply(const Candidate& best) {
    Link& left = links_[best.left];
    Link& right = links_[left.next];
    left.token = table_.find(best.left_token, best.right_token)->token;
    right.token = kDead;
    left.next = right.next;
    if (left.next != kNone) links_[left.next].previous = best.left;
    if (left.previous != kNone) offer(left.previous);
    offer(best.left);
  }

  const MergeTable& table_;
  std::vector<Link> links_;
  Queue queue_;
};

template <typename Queue>
void merge_with(const MergeTable& table, std::vector<std::int32_t>& tokens) {
  Merger<Queue> merger(table, tokens);
  merger.run();
  merger.copy_to(tokens);
}

}  // namespace

void merge_tokens(const MergeTable& table, std::vector<std::int32_t>& tokens) {
  if (tokens.size() < 2) return;
  tokens.size() < kLongWord ? merge_with<Heap>(table, tokens) : merge_with<RankLists>(table, tokens);
}

}  // namespace epipe::data
