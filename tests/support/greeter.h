#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <string>

#include "epipe/base/clock.h"
#include "support/fabrics.h"

// A listener to knock at, and what becomes of those who do.
namespace epipe::testing {

inline std::string here(const transport::Listener& listener) { return "127.0.0.1:" + std::to_string(listener.port()); }

// A listener that answers every link with one message.
class Greeter {
 public:
  explicit Greeter(const transport::ListenConfig& config)
      : listener_(config, [](transport::Incoming incoming) {
          const std::string name = incoming.certificate_name();
          const auto link = incoming.accept();
          const auto bytes = std::as_bytes(std::span(name));
          link->send(Bytes(bytes.begin(), bytes.end()));
        }) {}
  std::string address() const { return here(listener_); }
  int port() const { return listener_.port(); }

 private:
  transport::Listener listener_;
};

// The common name the listener saw.
inline std::string greeted(transport::ConnectConfig dial, const std::string& address) {
  dial.address = address;
  transport::Connector connector(dial);
  const Bytes greeting = connector.open({})->recv(std::chrono::seconds(20));
  return {reinterpret_cast<const char*>(greeting.data()), greeting.size()};
}

// Why it was refused; fails the test when it was not.
inline std::string refusal(transport::ConnectConfig dial, const std::string& address, std::optional<transport::Refusal> why) {
  dial.address = address;
  transport::Connector connector(dial);
  const Stopwatch watch;
  std::string text;
  try {
    connector.open({});
    ADD_FAILURE() << "accepted";
  } catch (const transport::Refused& refused) {
    EXPECT_EQ(why, refused.why()) << refused.what();
    text = refused.what();
  } catch (const transport::ConnectionLost& lost) {
    EXPECT_FALSE(why.has_value()) << lost.what();
    text = lost.what();
  }
  EXPECT_LT(watch.seconds(), 10.0);
  return text;
}

}  // namespace epipe::testing
