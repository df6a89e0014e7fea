#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "epipe/transport/c10d/liveness.h"
#include "epipe/transport/c10d/mailbox.h"
#include "epipe/transport/link.h"

namespace epipe::transport {

struct NcclLinkConfig {
  int rank = 0;  // of the whole group, as `peer`
  int peer = 0;
  std::uint32_t channel = 0;
  std::uint64_t max_message_bytes = 0;
  c10::Device device{c10::kCUDA, 0};
};

// Messages over nccl's send and recv, staged in device memory: first the length as one int64 tensor, then the bytes. Each direction has
// its own communicator, because operations of one communicator wait for one another. nccl cannot signal that an end was closed; the
// store does.
class NcclLink final : public Link {
 public:
  NcclLink(const NcclLinkConfig& config, Store store, Liveness& liveness);
  ~NcclLink() override;

  void send(Bytes message) override;
  Bytes recv(Timeout timeout) override { return arrived_.pop(timeout); }
  void close() override;

 private:
  using Communicator = c10::intrusive_ptr<c10d::ProcessGroupNCCL>;
  Communicator make_communicator(bool outgoing);
  void receive();
  bool receive_one();
  bool transfer(c10::intrusive_ptr<c10d::Work> work);
  void check_peer();
  void check_open();

  const NcclLinkConfig config_;
  Store store_;
  Liveness& liveness_;
  Communicator out_;
  Communicator in_;
  Mailbox arrived_;
  std::atomic<bool> closed_ = false;
  std::mutex mutex_;
  std::string lost_;  // guarded by mutex_
  std::uint64_t sent_ = 0;
  std::thread thread_;
};

}  // namespace epipe::transport
