#include "epipe/cli/security_flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "epipe/base/file.h"
#include "epipe/cli/command.h"

namespace epipe::cli {
namespace {

constexpr std::uint64_t kMaxPemBytes = 1 << 20;
constexpr std::size_t kMostTokens = 16;

std::string read_file_text(const std::string& path) {
  const auto file = read_file(path, kMaxPemBytes);
  if (!file) throw UsageError(file.error().message);
  return {reinterpret_cast<const char*>(file.value().data()), file.value().size()};
}

// One per line. While a token is being replaced there are two: servers accept both, clients send the first.
std::vector<std::string> read_tokens(const std::string& path) {
  std::istringstream lines(read_file_text(path));
  std::vector<std::string> tokens;
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty()) continue;
    if (std::find(tokens.begin(), tokens.end(), line) != tokens.end()) throw UsageError(path + " holds a token twice");
    tokens.push_back(line);
    if (tokens.size() > kMostTokens) throw UsageError(fmt::format("{} holds more than {} tokens", path, kMostTokens));
  }
  if (tokens.empty()) throw UsageError(path + " holds no token");
  return tokens;
}

// The flags, with missing ones filled in from the --tls folder.
SecurityFlags completed(SecurityFlags flags, const std::string& who) {
  if (flags.tls.empty()) return flags;
  const auto fill = [&](std::string& path, const std::string& name) {
    if (path.empty()) path = flags.tls + "/" + name;
  };
  fill(flags.ca, "ca.pem");
  if (flags.token_file.empty() && flags.certificate.empty()) fill(flags.token_file, "token");
  if (who == "server") {
    fill(flags.certificate, "server.pem");
    fill(flags.key, "server.key");
  }
  return flags;
}

std::optional<transport::Identity> identity_of(const SecurityFlags& flags) {
  if (flags.certificate.empty() != flags.key.empty()) throw UsageError("--cert and --key come together");
  if (flags.certificate.empty()) return std::nullopt;
  return transport::Identity{read_file_text(flags.certificate), read_file_text(flags.key)};
}

}  // namespace

void add_security_flags(CLI::App& command, SecurityFlags& flags, bool server) {
  command.add_option("--tls", flags.tls, "Folder with certificates and token, as \"epipe serve --init-tls\" makes it");
  command.add_option("--ca", flags.ca, server ? "Certificate that signs the clients' certificates" : "Certificate that signs the server's");
  command.add_option("--cert", flags.certificate, server ? "The server's certificate" : "A client certificate, instead of a token");
  command.add_option("--key", flags.key, "The key of --cert");
  command.add_option(
      "--token-file", flags.token_file,
      server ? "File with the tokens that clients may show, one on each line" : "File with the server's token, on its first line");
  command.add_flag("--insecure", flags.insecure, "Plaintext, without a token; only within this machine");
}

bool says_how_to_connect(const SecurityFlags& flags) {
  return flags.insecure ||
         !(flags.tls.empty() && flags.ca.empty() && flags.certificate.empty() && flags.key.empty() && flags.token_file.empty());
}

transport::ConnectConfig connect_config(const SecurityFlags& given) {
  transport::ConnectConfig dial;
  dial.insecure = given.insecure;
  if (given.insecure) return dial;
  const SecurityFlags flags = completed(given, "client");
  if (flags.ca.empty()) throw UsageError("a connection needs --tls DIR or --ca FILE, or --insecure within this machine");
  dial.ca_pem = read_file_text(flags.ca);
  dial.identity = identity_of(flags);
  if (!flags.token_file.empty()) dial.token = read_tokens(flags.token_file).front();
  return dial;
}

transport::ListenConfig listen_config(const SecurityFlags& given, const std::string& address, bool named_tokens) {
  transport::ListenConfig listen;
  listen.address = address;
  listen.insecure = given.insecure;
  if (given.insecure) return listen;
  SecurityFlags flags = completed(given, "server");
  if (named_tokens && given.token_file.empty() && ::access(flags.token_file.c_str(), F_OK) != 0) flags.token_file.clear();
  listen.identity = identity_of(flags);
  if (!listen.identity)
    throw UsageError("a server needs --tls DIR or --cert and --key; \"epipe serve --init-tls DIR\" makes them for a first try");
  if (!flags.ca.empty()) listen.client_ca_pem = read_file_text(flags.ca);
  if (!flags.token_file.empty()) listen.tokens = read_tokens(flags.token_file);
  return listen;
}

}  // namespace epipe::cli
