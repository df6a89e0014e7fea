#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "epipe/base/clock.h"
#include "epipe/transport/network_config.h"

namespace epipe::serve {

// When the server's certificate ends, said at the start, and again each day of its last month. Any thread.
class CertificateWatch {
 public:
  // `write` gets lines. Throws std::runtime_error for a certificate that has ended; one that does not parse is for the listener to refuse.
  CertificateWatch(const transport::ListenConfig& listen, std::function<void(const std::string&)> write);

  // Throws std::runtime_error where it has ended.
  static void require_valid(const transport::ListenConfig& listen);
  void set(const transport::ListenConfig& listen);  // another one from now on
  void warn();                                      // call it often
  std::optional<std::int64_t> end() const;          // seconds since 1970; nothing without TLS

 private:
  const std::function<void(const std::string&)> write_;
  mutable std::mutex mutex_;  // guards what follows
  std::optional<std::int64_t> end_;
  Stopwatch since_warning_;
};

}  // namespace epipe::serve
