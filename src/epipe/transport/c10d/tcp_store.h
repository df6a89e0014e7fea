#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "epipe/transport/c10d/store_server.h"
#include "epipe/transport/link.h"

namespace epipe::transport {

// A rank's view of the store that rank 0 keeps at host:port; c10d's process groups rendezvous through it. Any thread. Waiting polls, so a
// waiting caller does not block others. After a connection error every call throws std::runtime_error.
class TcpStore final : public c10d::Store {
 public:
  // Waits until rank 0 listens, at most `timeout`, which also bounds every later call. `server`: only on rank 0, which keeps the store;
  // shared with clones.
  TcpStore(std::string host, int port, Timeout timeout, std::shared_ptr<StoreServer> server = nullptr);
  ~TcpStore() override;

  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override { wait(keys, getTimeout()); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  c10::intrusive_ptr<c10d::Store> clone();  // an override from LibTorch 2.8 on

 private:
  struct Answer {
    bool there = false;
    std::string value;
  };
  Answer ask(StoreOperation operation, const std::string& key, std::string_view argument = {});

  std::string host_;
  int port_;
  std::shared_ptr<StoreServer> server_;
  std::mutex mutex_;  // one request at a time
  int fd_ = -1;
};

}  // namespace epipe::transport
