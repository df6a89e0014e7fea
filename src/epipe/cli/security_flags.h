#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "epipe/transport/network_config.h"

namespace epipe::cli {

// How a client or a server shows who it is, as flags.
struct SecurityFlags {
  std::string tls;  // a folder as --init-tls writes it
  std::string ca;
  std::string certificate;
  std::string key;
  std::string token_file;
  bool insecure = false;
};

// `server`: the certificate is the server's own, and the CA is that of its clients.
void add_security_flags(CLI::App& command, SecurityFlags& flags, bool server);

// Whether any is given.
bool says_how_to_connect(const SecurityFlags& flags);

// Throws UsageError where a file is missing or nothing says how.
transport::ConnectConfig connect_config(const SecurityFlags& flags);
// `named_tokens`: clients have other tokens, so the folder of --tls may do without one.
transport::ListenConfig listen_config(const SecurityFlags& flags, const std::string& address, bool named_tokens = false);

}  // namespace epipe::cli
