#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "epipe/base/file.h"
#include "epipe/base/queue.h"
#include "epipe/transport/c10d/support.h"
#include "epipe/transport/connector.h"
#include "epipe/transport/group.h"
#include "epipe/transport/grpc/support.h"
#include "epipe/transport/inproc/inproc.h"
#include "epipe/transport/listener.h"
#include "epipe/transport/tls_files.h"
#include "support/temp_folder.h"

namespace epipe::testing {

using Ends = std::pair<std::unique_ptr<transport::Link>, std::unique_ptr<transport::Link>>;

// A way to connect two parties in this process, as often as one likes. It outlives its links.
class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual Ends connect() = 0;
};

class InprocFabric final : public Fabric {
 public:
  Ends connect() override { return transport::make_inproc_link(2); }
};

// Two ranks that live in threads of this process.
class GlooFabric final : public Fabric {
 public:
  explicit GlooFabric(std::uint64_t max_message_bytes = std::uint64_t{1} << 32) {
    transport::GroupConfig config;
    config.size = 2;
    config.master_port = transport::free_port();
    config.timeout = std::chrono::seconds(20);
    config.max_message_bytes = max_message_bytes;
    auto other = std::async(std::launch::async, [config]() mutable {
      config.rank = 1;
      return transport::make_group(config);
    });
    first_ = transport::make_group(config);
    second_ = other.get();
  }
  Ends connect() override {
    const auto channel = next_++;
    return {first_->link(1, channel), second_->link(0, channel)};
  }

 private:
  std::unique_ptr<transport::Group> first_;
  std::unique_ptr<transport::Group> second_;
  std::atomic<std::uint32_t> next_ = 0;
};

// The links a listener accepted, in their order.
class Accepted {
 public:
  transport::Listener::OnIncoming handler() {
    return [this](transport::Incoming incoming) { links_.push(incoming.accept()); };
  }
  std::unique_ptr<transport::Link> next() {
    auto link = links_.pop_within(std::chrono::seconds(20));
    if (!link) throw std::runtime_error("the listener accepted nothing");
    return std::move(*link);
  }

 private:
  Queue<std::unique_ptr<transport::Link>> links_{1024};
};

class GrpcFabric final : public Fabric {
 public:
  GrpcFabric(transport::ListenConfig listen, transport::ConnectConfig dial) {
    listen.max_streams = 256;
    listener_ = std::make_unique<transport::Listener>(listen, accepted_.handler());
    dial.address = listener_->port() == 0 ? listen.address : "127.0.0.1:" + std::to_string(listener_->port());
    dialer_ = std::make_unique<transport::Connector>(dial);
  }
  Ends connect() override {
    const std::lock_guard lock(mutex_);
    auto link = dialer_->open({{"channel", "1"}});
    return {std::move(link), accepted_.next()};
  }
  transport::Listener& listener() { return *listener_; }

 private:
  std::mutex mutex_;
  Accepted accepted_;
  std::unique_ptr<transport::Listener> listener_;
  std::unique_ptr<transport::Connector> dialer_;
};

inline std::string read_text(const std::string& path) {
  const auto bytes = read_file(path, 1 << 20);
  if (!bytes) throw std::runtime_error(bytes.error().text());
  const auto* const text = reinterpret_cast<const char*>(bytes.value().data());
  return {text, bytes.value().size()};
}

// What `epipe serve --init-tls` leaves, made once per process.
struct TlsFiles {
  std::string ca;
  transport::Identity server;
  transport::Identity client;
  std::string token;
};

inline TlsFiles make_tls_files() {
  const TempFolder folder;
  const auto made = transport::init_tls(folder.path(), {});
  if (!made) throw std::runtime_error(made.error().text());
  const auto text = [&](const char* name) { return read_text(folder.file(name)); };
  const std::string token = text("token");
  return {text("ca.pem"),
          {text("server.pem"), text("server.key")},
          {text("client.pem"), text("client.key")},
          token.substr(0, token.find('\n'))};
}

inline const TlsFiles& tls_files() {
  static const TlsFiles files = make_tls_files();
  return files;
}

inline transport::ListenConfig tls_listen() {
  transport::ListenConfig listen;
  listen.address = "127.0.0.1:0";
  listen.identity = tls_files().server;
  listen.tokens = {tls_files().token};
  return listen;
}

inline transport::ConnectConfig tls_dial() {
  transport::ConnectConfig dial;
  dial.ca_pem = tls_files().ca;
  dial.token = tls_files().token;
  return dial;
}

inline transport::ListenConfig plain_listen(const std::string& address = "127.0.0.1:0") {
  transport::ListenConfig listen;
  listen.address = address;
  listen.insecure = true;
  return listen;
}

inline transport::ConnectConfig plain_dial(const std::string& address = {}) {
  transport::ConnectConfig dial;
  dial.address = address;
  dial.insecure = true;
  return dial;
}

struct Transport {
  std::string name;
  std::function<bool()> available;
  std::function<std::unique_ptr<Fabric>()> make;
};

// Every transport of this build, by a name that fits a test's.
inline std::vector<Transport> transports() {
  static const TempFolder sockets;
  static std::atomic<int> next = 0;
  const auto always = [] { return true; };
  const auto gloo = [] { return transport::gloo_part().available; };
  const auto grpc = [] { return transport::grpc_part().available; };
  return {{"inproc", always, [] { return std::make_unique<InprocFabric>(); }},
          {"gloo", gloo, [] { return std::make_unique<GlooFabric>(); }},
          {"grpc_plain", grpc, [] { return std::make_unique<GrpcFabric>(plain_listen(), plain_dial()); }},
          {"grpc_tls", grpc, [] { return std::make_unique<GrpcFabric>(tls_listen(), tls_dial()); }},
          {"grpc_unix", grpc,
           [] { return std::make_unique<GrpcFabric>(plain_listen("unix:" + sockets.file(std::to_string(next++))), plain_dial()); }}};
}

}  // namespace epipe::testing
