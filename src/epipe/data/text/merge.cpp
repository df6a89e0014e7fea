#include "epipe/data/text/merge.h"

#include <cstddef>
#include <queue>
#include <tuple>

namespace epipe::data {
namespace {

using Index = std::uint32_t;  // of a token in its word; a word may be as long as a text of some gigabytes
constexpr Index kNone = ~Index{0};

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

class Merger {
 public:
  Merger(const MergeTable& table, const std::vector<std::int32_t>& tokens) : table_(table) {
    const auto count = static_cast<Index>(tokens.size());
    links_.reserve(count);
    for (Index i = 0; i < count; ++i) links_.push_back({tokens[i], i == 0 ? kNone : i - 1, i + 1 < count ? i + 1 : kNone});
    std::vector<Candidate> pairs;
    pairs.reserve(count);
    for (Index i = 0; i + 1 < count; ++i) {
      if (const Merge* const merge = merge_at(i)) pairs.push_back({merge->rank, i, tokens[i], tokens[i + 1]});
    }
    queue_ = Queue(Later(), std::move(pairs));
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
  using Queue = std::priority_queue<Candidate, std::vector<Candidate>, Later>;

  const Merge* merge_at(Index left) const {
    const Index right = links_[left].next;
    return right == kNone ? nullptr : table_.find(links_[left].token, links_[right].token);
  }

  void offer(Index left) {
    const Merge* const merge = merge_at(left);
    if (merge != nullptr) queue_.push({merge->rank, left, links_[left].token, links_[links_[left].next].token});
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

}  // namespace

void merge_tokens(const MergeTable& table, std::vector<std::int32_t>& tokens) {
  if (tokens.size() < 2) return;
  Merger merger(table, tokens);
  merger.run();
  merger.copy_to(tokens);
}

}  // namespace epipe::data
