#include "epipe/transport/grpc/connection.h"

#include <utility>

#include "epipe/transport/grpc/client_stream.h"

namespace epipe::transport {

Connection::Connection(std::shared_ptr<::grpc::Channel> channel) : channel_(std::move(channel)) {
  thread_ = std::thread([this] { run(); });
}

Connection::~Connection() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

// Notifies with the mutex held: once the thread has the stream, the connection may be destroyed at any time.
void Connection::retire(std::shared_ptr<ClientStream> stream) {
  const std::lock_guard lock(mutex_);
  over_.push_back(std::move(stream));
  changed_.notify_all();
}

void Connection::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopped_ || !over_.empty(); });
    if (over_.empty()) return;
    auto stream = std::move(over_.front());
    over_.pop_front();
    lock.unlock();
    stream->be_over();
    stream.reset();
    lock.lock();
  }
}

}  // namespace epipe::transport
