#pragma once

#include <grpcpp/channel.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

namespace epipe::transport {

class ClientStream;

// A channel of gRPC, shared by a connector and its links. gRPC joins its own threads when the last channel goes, so that must not happen in
// one of them: streams that are over are handed to a thread of the connection, which lets go of them.
class Connection {
 public:
  explicit Connection(std::shared_ptr<::grpc::Channel> channel);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const std::shared_ptr<::grpc::Channel>& channel() const { return channel_; }
  // The last thing a thread of gRPC does with a stream. Those who wait for its end learn of it from the connection's thread.
  void retire(std::shared_ptr<ClientStream> stream);

 private:
  void run();

  std::shared_ptr<::grpc::Channel> channel_;  // shared with the streams
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<ClientStream>> over_;  // guarded by mutex_, as is what follows
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace epipe::transport
