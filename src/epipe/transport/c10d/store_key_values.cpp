#include "epipe/transport/c10d/store_key_values.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

namespace epipe::transport {
namespace {

constexpr std::chrono::milliseconds kPause{5};

// Runs an operation of the store; it fails when the rank that keeps it is gone.
template <typename Ask>
auto ask(const Ask& operation) {
  try {
    return operation();
  } catch (const std::exception& failure) {
    const std::string why = failure.what();
    throw ConnectionLost("the store of rank 0 does not answer: " + why.substr(0, why.find('\n')));
  }
}

}  // namespace

void StoreKeyValues::put(const std::string& key, const std::string& value) {
  ask([&] { store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end())); });
}

bool StoreKeyValues::has(const std::string& key) {
  return ask([&] { return store_->check({key}); });
}

std::string StoreKeyValues::get(const std::string& key, Timeout timeout) {
  const auto start = std::chrono::steady_clock::now();
  while (!has(key)) {
    if (timeout != kNoTimeout && std::chrono::steady_clock::now() - start >= timeout) {
      throw TimedOut(fmt::format("nobody put '{}' within {} ms", key, timeout.count()));
    }
    std::this_thread::sleep_for(kPause);
  }
  const auto value = ask([&] { return store_->get(key); });
  return {value.begin(), value.end()};
}

}  // namespace epipe::transport
