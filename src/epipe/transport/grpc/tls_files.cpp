#include "epipe/transport/tls_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <map>
#include <stdexcept>
#include <utility>

#include "epipe/base/file.h"
#include "epipe/transport/grpc/certificate.h"

namespace epipe::transport {
namespace {

using Files = std::map<std::string, std::string>;  // name -> content

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

Files make_files(const std::vector<std::string>& names) {
  std::vector<std::string> server_names{"localhost", "127.0.0.1", "::1"};
  if (const auto name = host_name(); !name.empty()) server_names.push_back(name);
  server_names.insert(server_names.end(), names.begin(), names.end());
  const Key ca_key = make_key();
  const Certificate ca = make_certificate({"epipe CA", {}, ""}, ca_key.get(), nullptr, nullptr);
  const Key server_key = make_key();
  const Certificate server = make_certificate({"epipe server", server_names, "serverAuth"}, server_key.get(), ca.get(), ca_key.get());
  const Key client_key = make_key();
  const Certificate client = make_certificate({"epipe client", {}, "clientAuth"}, client_key.get(), ca.get(), ca_key.get());
  return {{"ca.pem", pem_of(ca.get())},         {"ca.key", pem_of(ca_key.get())},
          {"server.pem", pem_of(server.get())}, {"server.key", pem_of(server_key.get())},
          {"client.pem", pem_of(client.get())}, {"client.key", pem_of(client_key.get())},
          {"token", random_token() + "\n"}};
}

Error io_error(const char* what, const std::string& path) {
  return {ErrorCode::kIo, fmt::format("cannot {} {}: {}", what, path, std::strerror(errno))};
}

// A file that did not exist, for its owner only.
Result<void> write_secret(const std::string& path, const std::string& content) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return io_error("create", path);
  const bool written = ::write(fd, content.data(), content.size()) == static_cast<ssize_t>(content.size()) && ::fsync(fd) == 0;
  if (::close(fd) != 0 || !written) return io_error("write", path);
  return {};
}

}  // namespace

Result<void> init_tls(const std::string& folder, const std::vector<std::string>& names) {
  Files files;
  try {
    files = make_files(names);
  } catch (const std::invalid_argument& wrong) {
    return Error{ErrorCode::kBadSpec, wrong.what()};
  } catch (const std::runtime_error& failed) {
    return Error{ErrorCode::kIo, failed.what()};
  }
  EPIPE_TRY(make_folders(folder));
  for (const auto& [name, content] : files) {
    struct stat found {};
    const std::string path = folder + "/" + name;
    if (::lstat(path.c_str(), &found) == 0)
      return Error{ErrorCode::kIo, fmt::format("{} exists; give a folder without it, nothing is overwritten", path)};
  }
  for (const auto& [name, content] : files) EPIPE_TRY(write_secret(folder + "/" + name, content));
  return {};
}

Result<std::int64_t> certificate_expiry(const std::string& pem) {
  const std::unique_ptr<BIO, int (*)(BIO*)> text(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
  const Certificate certificate(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr), X509_free);
  std::tm end{};
  const bool read = certificate && ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &end) == 1;
  ERR_clear_error();
  if (!read)
    return Error{ErrorCode::kBadFile, fmt::format("expected a certificate in PEM form, got {} bytes of something else", pem.size())};
  return static_cast<std::int64_t>(::timegm(&end));
}

}  // namespace epipe::transport
