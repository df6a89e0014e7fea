// What the client of a run takes from another process's answers.
#include "epipe/train/peer.h"

#include <gtest/gtest.h>

#include "epipe/train/reducer.h"

namespace epipe::train {
namespace {

// Answers everything with these bytes.
class Answering final : public transport::Link {
 public:
  explicit Answering(Bytes answer) : answer_(std::move(answer)) {}
  void send(Bytes) override {}
  Bytes recv(transport::Timeout) override { return answer_; }
  void close() override {}

 private:
  Bytes answer_;
};

template <typename Expected>
std::string error_of(const nlohmann::json& fields) {
  Peer peer(1, Peer::Role::kWorker, "worker 1 at host:7000", std::make_unique<Answering>(to_bytes({"failed", fields})),
            transport::kNoTimeout);
  try {
    peer.answer("stepped");
  } catch (const Expected& error) {
    return error.what();
  }
  return "something else";
}

TEST(Peer, PassesOnWhyItFailed) {
  EXPECT_EQ(error_of<PeerFailed>({{"error", "expected 3, got 4"}, {"again", false}}), "worker 1 at host:7000: expected 3, got 4");
  EXPECT_EQ(error_of<transport::ConnectionLost>({{"error", "a link broke"}, {"again", true}}), "worker 1 at host:7000: a link broke");
  EXPECT_EQ(error_of<ReplicaLost>({{"error", "rank 2 is gone"}, {"replica", true}}), "worker 1 at host:7000: rank 2 is gone");
}

TEST(Peer, CannotWriteToTheTerminalAsItLikes) {
  const std::string error = error_of<PeerFailed>({{"error", "\x1b]0;owned\x07\n$ \x1b[2Jrm -rf" + std::string(5'000'000, 'A')}});
  EXPECT_TRUE(std::all_of(error.begin(), error.end(), [](char c) { return c >= ' ' && c <= '~'; })) << error;
  EXPECT_LT(error.size(), 3000U);
}

TEST(Peer, IsTakenAtItsWordWhateverTheTypesAre) {
  EXPECT_EQ(error_of<PeerFailed>({{"error", 7}, {"again", "yes"}, {"replica", nullptr}}), "worker 1 at host:7000: no reason");
  EXPECT_EQ(error_of<PeerFailed>(nlohmann::json::object()), "worker 1 at host:7000: no reason");
}

}  // namespace
}  // namespace epipe::train
