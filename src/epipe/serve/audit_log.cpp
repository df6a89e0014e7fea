#include "epipe/serve/audit_log.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "epipe/base/printable.h"
#include "epipe/serve/log.h"

namespace epipe::serve {
namespace {

using nlohmann::json;

constexpr std::size_t kTextBytes = 200;
constexpr double kComplainSeconds = 60;

std::string line_of(const char* event, const json& fields) {
  nlohmann::ordered_json line = {{"time", utc_text(std::time(nullptr))}, {"event", event}};
  for (const auto& [name, value] : fields.items())
    line[name] = value.is_string() ? json(printable(value.get<std::string>(), kTextBytes)) : value;
  return line.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
}

// Refuses devices, pipes and other users' links, and never blocks on one. An existing file is made private, too.
int open_audit(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  const int reason = errno;
  struct stat status {};
  if (fd >= 0 && ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && ::fchmod(fd, 0600) == 0) return fd;
  if (fd >= 0) ::close(fd);
  throw std::runtime_error(
      fmt::format("--audit-log: cannot write {}: {}", path, fd >= 0 ? "it is not a file of this user" : std::strerror(reason)));
}

}  // namespace

std::string utc_text(std::int64_t seconds_since_1970) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(seconds_since_1970)));
}

AuditLog::AuditLog(std::string path) : path_(std::move(path)) {
  if (!path_.empty()) fd_ = open_audit(path_);
}

AuditLog::~AuditLog() {
  if (fd_ >= 0) ::close(fd_);
}

void AuditLog::write(const char* event, const json& fields) {
  const std::lock_guard lock(mutex_);
  if (fd_ < 0) return;
  const bool told = unsaid_ == 0 || append(line_of("lines_lost", {{"lines", unsaid_}}));
  if (told) unsaid_ = 0;
  if (told && append(line_of(event, fields))) {
    complained_ = false;
    return;
  }
  const char* const reason = std::strerror(errno);
  ++lost_;
  ++unsaid_;
  if (complained_ && since_complaint_.seconds() < kComplainSeconds) return;
  log("cannot write {}: {}; {} lines of the audit are lost so far", path_, reason, lost_);
  complained_ = true;
  since_complaint_ = {};
}

bool AuditLog::append(const std::string& line) {
  const std::string whole = torn_ ? "\n" + line : line;
  const ssize_t written = ::write(fd_, whole.data(), whole.size());
  if (written == static_cast<ssize_t>(whole.size())) {
    torn_ = false;
    return true;
  }
  if (written > 0) {
    torn_ = whole[static_cast<std::size_t>(written) - 1] != '\n';
    errno = ENOSPC;
  }
  return false;
}

void AuditLog::reopen() {
  if (path_.empty()) return;
  const std::lock_guard lock(mutex_);
  try {
    const int fd = open_audit(path_);
    ::close(std::exchange(fd_, fd));
    torn_ = false;
  } catch (const std::exception& error) {
    log("{}; the audit goes on in the file that was open", error.what());
  }
}

std::uint64_t AuditLog::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

}  // namespace epipe::serve
