#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "epipe/transport/group.h"

namespace epipe::transport {

// A key-value store over a c10d store. It polls instead of waiting inside the store, which serves one caller at a time.
class StoreKeyValues final : public KeyValueStore {
 public:
  explicit StoreKeyValues(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void put(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Timeout timeout) override;
  bool has(const std::string& key);

 private:
  c10::intrusive_ptr<c10d::Store> store_;  // shared with the process groups
};

}  // namespace epipe::transport
