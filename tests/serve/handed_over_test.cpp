// epipe serve at a socket that somebody else opened and holds, as systemd does.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "support/process.h"
#include "support/temp_folder.h"

namespace epipe::serve {
namespace {

using testing::Process;

// A listening socket, which programs started here inherit.
class Held {
 public:
  explicit Held(std::uint32_t host = INADDR_LOOPBACK) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(host);
    socklen_t length = sizeof(at);
    const bool listens = ::bind(fd_, reinterpret_cast<sockaddr*>(&at), length) == 0 && ::listen(fd_, 16) == 0 &&
                         ::getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &length) == 0;
    if (!listens) throw std::runtime_error("cannot listen");
    port_ = ntohs(at.sin_port);
  }
  ~Held() { ::close(fd_); }

  int port() const { return port_; }
  // Before a program: its descriptor 3 is the socket.
  std::vector<std::string> before(const std::string& count = "1") const {
    return {"bash", "-c", "export LISTEN_PID=$$ LISTEN_FDS=" + count + "; exec \"$@\" 3<&" + std::to_string(fd_), "bash"};
  }

 private:
  int fd_;
  int port_ = 0;
};

class HandedOver : public ::testing::Test {
 protected:
  std::vector<std::string> server(const std::string& address) const {
    return {"serve", "--insecure", "--listen", address, "--state-dir", folder_.file("state")};
  }
  std::vector<std::string> client(int port) const {
    return {"train",
            "--connect",
            "127.0.0.1:" + std::to_string(port),
            "--insecure",
            "--model",
            "mlp",
            "--cuts",
            "1,2",
            "--place",
            "0,1,0",
            "--batch",
            "16",
            "--max-steps",
            "3",
            "--run-dir",
            folder_.file("run")};
  }
  std::string log(const std::string& name) const { return folder_.file(name); }

  testing::TempFolder folder_;
};

TEST_F(HandedOver, ClientsThatConnectWhileNoServerRunsWaitForTheNextOne) {
  const Held held;
  const std::string address = "127.0.0.1:" + std::to_string(held.port());
  {
    Process first(server(address), log("first"), held.before());
    ASSERT_TRUE(first.says("listening on " + address, 60)) << first.log();
    first.signal(SIGTERM);
    ASSERT_EQ(first.wait(60), 0) << first.log();
  }
  Process waiting(client(held.port()), log("client"));
  waiting.wait(1);
  ASSERT_TRUE(waiting.running()) << waiting.log();
  Process second(server(address), log("second"), held.before());
  EXPECT_EQ(waiting.wait(120), 0) << waiting.log() << second.log();
  EXPECT_EQ(waiting.log().find("cannot connect"), std::string::npos) << "it was never refused: " << waiting.log();
}

TEST_F(HandedOver, AreRefusedWhereTheServerIsToListenElsewhere) {
  const Held held;
  Process other(server("127.0.0.1:1"), log("other"), held.before());
  EXPECT_EQ(other.wait(60), 1);
  EXPECT_NE(other.log().find("expected the socket that was handed over to listen on TCP at 127.0.0.1:1, got 127.0.0.1:" +
                             std::to_string(held.port())),
            std::string::npos)
      << other.log();
}

TEST_F(HandedOver, AreRefusedWhereTheServerHasAUnixSocket) {
  const Held held;
  Process local(server("unix:" + folder_.file("socket")), log("local"), held.before());
  EXPECT_EQ(local.wait(60), 2);
  EXPECT_NE(local.log().find("expected a TCP address for the socket that was handed over, got unix:"), std::string::npos) << local.log();
}

TEST_F(HandedOver, ThatOthersReachCarryNoPlaintext) {
  const Held open(INADDR_ANY);
  Process plain(server("127.0.0.1:" + std::to_string(open.port())), log("plain"), open.before());
  EXPECT_EQ(plain.wait(60), 1);
  EXPECT_NE(plain.log().find("got 0.0.0.0:"), std::string::npos) << plain.log();
}

TEST_F(HandedOver, ThatAreNoSocketsAreNamed) {
  const Held held;
  const std::string address = "127.0.0.1:" + std::to_string(held.port());
  Process more(server(address), log("more"), held.before("61"));
  EXPECT_EQ(more.wait(60), 1);
  EXPECT_NE(more.log().find("which does not"), std::string::npos) << more.log();
  Process words(server(address), log("words"), held.before("many"));
  EXPECT_EQ(words.wait(60), 1);
  EXPECT_NE(words.log().find("LISTEN_FDS: expected a number"), std::string::npos) << words.log();
}

}  // namespace
}  // namespace epipe::serve
