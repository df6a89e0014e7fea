#include "epipe/serve/certificate_watch.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <stdexcept>
#include <utility>

#include "epipe/transport/tls_files.h"

namespace epipe::serve {
namespace {

constexpr double kDaySeconds = 86400;
constexpr double kWarnDays = 30;

std::optional<std::int64_t> end_of(const transport::ListenConfig& listen) {
  if (!listen.identity) return std::nullopt;
  const auto end = transport::certificate_expiry(listen.identity->certificate_pem);
  return end ? std::optional(end.value()) : std::nullopt;
}

double days_until(std::int64_t end) { return (static_cast<double>(end) - static_cast<double>(std::time(nullptr))) / kDaySeconds; }

std::string text_of(std::int64_t end) {
  const double days = days_until(end);
  const std::string hurry = days < kWarnDays ? "; get another one, put it in the place of the old one, and send this process SIGHUP" : "";
  return fmt::format("the server's certificate is valid until {:%Y-%m-%d %H:%M:%S} UTC, {:.0f} days{}",
                     fmt::gmtime(static_cast<std::time_t>(end)), days, hurry);
}

}  // namespace

CertificateWatch::CertificateWatch(const transport::ListenConfig& listen, std::function<void(const std::string&)> write)
    : write_(std::move(write)) {
  require_valid(listen);
  set(listen);
}

void CertificateWatch::require_valid(const transport::ListenConfig& listen) {
  const auto end = end_of(listen);
  if (!end || days_until(*end) > 0) return;
  throw std::runtime_error(
      fmt::format("the server's certificate expired on {:%Y-%m-%d %H:%M:%S} UTC: get another one (--cert), or check the "
                  "clock of this machine",
                  fmt::gmtime(static_cast<std::time_t>(*end))));
}

void CertificateWatch::set(const transport::ListenConfig& listen) {
  const std::lock_guard lock(mutex_);
  end_ = end_of(listen);
  since_warning_ = {};
  if (end_) write_(text_of(*end_));
}

void CertificateWatch::warn() {
  const std::lock_guard lock(mutex_);
  if (!end_ || since_warning_.seconds() < kDaySeconds || days_until(*end_) > kWarnDays) return;
  since_warning_ = {};
  write_(text_of(*end_));
}

std::optional<std::int64_t> CertificateWatch::end() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

}  // namespace epipe::serve
