#pragma once

#include <grpcpp/channel.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

namespace epipe::transport {

class ClientStream;

// A gRPC channel, shared by a connector and its links. gRPC joins its own threads when the last channel is destroyed, which must not happen
// on one of them: finished streams are handed to a thread of the connection, which releases them.
class Connection {
 public:
  explicit Connection(std::shared_ptr<::grpc::Channel> channel);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const std::shared_ptr<::grpc::Channel>& channel() const { return channel_; }
  // The last thing a gRPC thread does with a stream. The connection's thread then notifies those who wait for its end.
  void retire(std::shared_ptr<ClientStream> stream);

 private:
  void run();

  std::shared_ptr<::grpc::Channel> channel_;  // shared with the streams
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<ClientStream>> over_;  // mutex_ guards this and stopped_
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace epipe::transport
