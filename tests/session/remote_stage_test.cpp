#include "epipe/session/remote_stage.h"

#include <gtest/gtest.h>

#include "epipe/transport/refused.h"

namespace epipe::session {
namespace {

// A server of which only the command channel is asked for.
class Server : public PeerConnector {
 public:
  std::vector<int> workers() const override { return {1}; }
  std::vector<int> leaders() const override { return {}; }
  std::string name(int) const override { return "the server"; }
  std::vector<std::string> addresses() const override { return {}; }
  std::unique_ptr<transport::Link> command_channel(int) override { return take(asked_++); }
  std::unique_ptr<transport::Link> data_channel(int, int, std::uint64_t) override { throw std::logic_error("no data yet"); }
  int asked() const { return asked_; }

 private:
  virtual std::unique_ptr<transport::Link> take(int connection) = 0;
  int asked_ = 0;
};

class DroppedLink final : public transport::Link {
 public:
  void send(Bytes) override {}
  Bytes recv(transport::Timeout) override { throw transport::ConnectionLost("the listener is shutting down"); }
  void close() override {}
};

// It takes two connections and drops them, as one whose previous session is ending. Then it refuses for good, which ends a test.
class EndingServer final : public Server {
  std::unique_ptr<transport::Link> take(int connection) override {
    if (connection == 2) throw transport::Refused(transport::Refusal::kVersion, "of another version");
    return std::make_unique<DroppedLink>();
  }
};

class NoServer final : public Server {
  std::unique_ptr<transport::Link> take(int) override { throw transport::ConnectionLost("nobody answers"); }
};

RemoteStageConfig within_a_minute() {
  RemoteStageConfig config;
  config.timeout = std::chrono::minutes(1);
  return config;
}

TEST(RemoteStage, ConnectsAgainWhereAServerTookItsConnectionAndDroppedIt) {
  EndingServer server;
  EXPECT_THROW(RemoteStage(server, within_a_minute()), transport::Refused);
  EXPECT_EQ(server.asked(), 3);
}

TEST(RemoteStage, FailsAtOnceWhereNobodyAnswers) {
  NoServer server;
  EXPECT_THROW(RemoteStage(server, within_a_minute()), transport::ConnectionLost);
  EXPECT_EQ(server.asked(), 1);
}

}  // namespace
}  // namespace epipe::session
