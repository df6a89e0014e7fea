#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <ctime>
#include <stdexcept>

#include "epipe/base/file.h"
#include "epipe/cli/doctor.h"
#include "epipe/cli/security_flags.h"
#include "epipe/transport/listener.h"
#include "epipe/transport/tls_files.h"

namespace epipe::cli {
namespace {

constexpr double kSecondsOfDay = 86400;
constexpr double kSoonDays = 30;
constexpr std::uint64_t kMostPemBytes = 1 << 20;
constexpr const char* kRenew = "get another one (for a first try: epipe serve --init-tls NEWDIR), then send the server SIGHUP";

bool has_file(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

Finding certificate(const std::string& folder, const std::string& name) {
  const auto content = read_file(folder + "/" + name, kMostPemBytes);
  if (!content) return {name, Finding::Level::kWrong, content.error().message, "copy it from the server's folder"};
  const auto end = transport::certificate_expiry({reinterpret_cast<const char*>(content.value().data()), content.value().size()});
  if (!end) return {name, Finding::Level::kWrong, end.error().message, kRenew};
  const double days = (static_cast<double>(end.value()) - static_cast<double>(std::time(nullptr))) / kSecondsOfDay;
  const std::string day = fmt::format("{:%Y-%m-%d}", fmt::gmtime(static_cast<std::time_t>(end.value())));
  if (days <= 0) return {name, Finding::Level::kWrong, fmt::format("ended on {}", day), kRenew};
  const std::string found = fmt::format("valid until {}, {:.0f} days", day, days);
  return days < kSoonDays ? Finding{name, Finding::Level::kWarning, found, kRenew} : Finding{name, Finding::Level::kFine, found};
}

// Secrets must be readable only by their owner.
Finding secret(const std::string& folder, const std::string& name) {
  struct stat status {};
  const std::string path = folder + "/" + name;
  if (::stat(path.c_str(), &status) != 0) return {name, Finding::Level::kWrong, path + " is missing", "copy it from where it was made"};
  if ((status.st_mode & 0077) == 0) return {name, Finding::Level::kFine, "readable only by its owner"};
  return {name, Finding::Level::kWarning, fmt::format("mode {:o}: others may read it", status.st_mode & 0777), "chmod 600 " + path};
}

// Checks certificate, key, CA and tokens together, like a server.
Finding together(const std::string& folder) {
  try {
    SecurityFlags flags;
    flags.tls = folder;
    const transport::Listener tried(listen_config(flags, "127.0.0.1:0"), [](const transport::Incoming&) {});
    return {"TLS", Finding::Level::kFine, "certificate, key, CA and token fit each other"};
  } catch (const std::exception& error) {
    return {"TLS", Finding::Level::kWrong, error.what(), "use the files that one epipe serve --init-tls has made"};
  }
}

}  // namespace

std::vector<Finding> examine_tls(const std::string& folder) {
  if (!has_file(folder))
    return {{"TLS", Finding::Level::kWrong, folder + " does not exist", "epipe serve --init-tls " + folder + " makes one"}};
  std::vector<Finding> findings = {certificate(folder, "ca.pem")};
  if (has_file(folder + "/token")) findings.push_back(secret(folder, "token"));
  for (const std::string who : {"server", "client"}) {
    if (!has_file(folder + "/" + who + ".pem")) continue;
    findings.push_back(certificate(folder, who + ".pem"));
    findings.push_back(secret(folder, who + ".key"));
  }
  if (has_file(folder + "/server.pem")) findings.push_back(together(folder));
  return findings;
}

}  // namespace epipe::cli
