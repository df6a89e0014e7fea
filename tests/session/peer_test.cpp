// What a coordinator takes from a participant's replies.
#include "epipe/session/peer.h"

#include <gtest/gtest.h>

#include "epipe/session/reducer.h"

namespace epipe::session {
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
std::string error_of(Bytes answer) {
  Peer peer(1, Peer::Role::kWorker, "worker 1 at host:7000", std::make_unique<Answering>(std::move(answer)), transport::kNoTimeout);
  try {
    peer.recv<StepReply>();
  } catch (const Expected& error) {
    return error.what();
  }
  return "something else";
}

template <typename Expected>
std::string error_of(const ErrorReply& reply) {
  return error_of<Expected>(to_bytes(Reply(reply)));
}

// An ErrorReply of this JSON.
Bytes error_bytes(const std::string& text) {
  Bytes bytes(1, std::byte{0});
  append(bytes, static_cast<std::uint32_t>(text.size()));
  append_bytes(bytes, std::as_bytes(std::span(text)));
  return bytes;
}

TEST(Peer, PassesOnWhyItFailed) {
  EXPECT_EQ(error_of<PeerFailed>(ErrorReply{"expected 3, got 4"}), "worker 1 at host:7000: expected 3, got 4");
  EXPECT_EQ(error_of<transport::ConnectionLost>(ErrorReply{"a link broke", true}), "worker 1 at host:7000: a link broke");
  EXPECT_EQ(error_of<ReplicaLost>(ErrorReply{"rank 2 is gone", true, true}), "worker 1 at host:7000: rank 2 is gone");
  EXPECT_EQ(error_of<PeerFailed>(ErrorReply{}), "worker 1 at host:7000: no reason");
}

TEST(Peer, MustGiveTheReplyThatBelongsToTheCommand) {
  EXPECT_EQ(error_of<PeerFailed>(to_bytes(Reply(SaveReply{}))), "worker 1 at host:7000: expected the reply stepped, got saved");
}

TEST(Peer, CannotWriteToTheTerminalAsItLikes) {
  const std::string error = error_of<PeerFailed>(ErrorReply{"\x1b]0;owned\x07\n$ \x1b[2Jrm -rf" + std::string(5'000'000, 'A')});
  EXPECT_TRUE(std::all_of(error.begin(), error.end(), [](char c) { return c >= ' ' && c <= '~'; })) << error;
  EXPECT_LT(error.size(), 3000U);
}

TEST(Peer, ThatSendsOtherTypesIsRefused) {
  for (const char* const fields :
       {R"({"error": 7, "retry": false, "replica_lost": false})", R"({"error": "x", "retry": "yes"})", "{}", "[]"}) {
    EXPECT_NE(error_of<PeerFailed>(error_bytes(fields)).find("worker 1 at host:7000: bad_message: "), std::string::npos) << fields;
  }
}

}  // namespace
}  // namespace epipe::session
