#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "epipe/transport/network_config.h"

namespace epipe::cli {

// The authentication flags of a client or a server.
struct SecurityFlags {
  std::string tls;  // a folder written by --init-tls
  std::string ca;
  std::string certificate;
  std::string key;
  std::string token_file;
  bool insecure = false;
};

// `server`: the certificate is the server's own, and the CA signs its clients' certificates.
void add_security_flags(CLI::App& command, SecurityFlags& flags, bool server);

// Whether any is given.
bool says_how_to_connect(const SecurityFlags& flags);

// Throws UsageError if a file is missing or no flag says how to authenticate.
transport::ConnectConfig connect_config(const SecurityFlags& flags);
// `named_tokens`: clients have other tokens, so the --tls folder need not have one.
transport::ListenConfig listen_config(const SecurityFlags& flags, const std::string& address, bool named_tokens = false);

}  // namespace epipe::cli
