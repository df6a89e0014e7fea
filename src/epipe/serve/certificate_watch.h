#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "epipe/base/clock.h"
#include "epipe/transport/network_config.h"

namespace epipe::serve {

// Reports when the server's certificate expires: at the start, and daily in its last month. Any thread.
class CertificateWatch {
 public:
  // `write` gets lines. Throws std::runtime_error for an expired certificate; one that does not parse is left to the listener.
  CertificateWatch(const transport::ListenConfig& listen, std::function<void(const std::string&)> write);

  // Throws std::runtime_error if it has expired.
  static void require_valid(const transport::ListenConfig& listen);
  void set(const transport::ListenConfig& listen);  // replaces the certificate
  void warn();                                      // call it often
  std::optional<std::int64_t> end() const;          // expiry in seconds since 1970; nullopt without TLS

 private:
  const std::function<void(const std::string&)> write_;
  mutable std::mutex mutex_;  // guards the members below
  std::optional<std::int64_t> end_;
  Stopwatch since_warning_;
};

}  // namespace epipe::serve
