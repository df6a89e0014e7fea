// epipe serve, and the session it starts for each client
#include <fmt/format.h>

#include <optional>

#include "epipe/cli/build_labels.h"
#include "epipe/cli/command.h"
#include "epipe/cli/device_flag.h"
#include "epipe/cli/security_flags.h"
#include "epipe/cli/serve_admin.h"
#include "epipe/cli/stop_signal.h"
#include "epipe/serve/child.h"
#include "epipe/serve/server.h"
#include "epipe/transport/handed_over.h"
#include "epipe/transport/tls_files.h"

namespace epipe::cli {
namespace {

struct ServeFlags {
  serve::ServeConfig config;
  SecurityFlags security;
  std::string listen = "127.0.0.1:7000";
  std::string tokens;
  std::string add_token;
  std::string models;
  std::string init_tls;
  std::vector<std::string> names;
  double memory_gb = 0;
  std::optional<double> state_gb;
  double reuse_gb = 1;
};

void run_init_tls(const ServeFlags& flags) {
  value_or_fail(transport::init_tls(flags.init_tls, flags.names));
  fmt::print(
      "{0} holds a CA, a server certificate, a client certificate and a token.\n"
      "server:  epipe serve --listen HOST:PORT --tls {0}\n"
      "client:  copy ca.pem and token into a folder there, then epipe train --connect HOST:PORT --tls FOLDER ...\n",
      flags.init_tls);
}

// Prints the names by which clients find them.
model::ScriptFiles install_scripts(const std::string& folder) {
  auto files = value_or_fail(model::read_script_folder(folder));
  for (const auto& [hash, path] : files) fmt::print(stderr, "installed {} as torchscript:sha256={}\n", path, hash);
  if (files.empty()) fmt::print(stderr, "{} holds no TorchScript file (*.pt)\n", folder);
  return files;
}

// Prints the token to stdout only, for redirection into a file; it is stored nowhere.
void run_add_token(const ServeFlags& flags) {
  if (flags.tokens.empty()) throw UsageError("--add-token NAME needs --tokens FILE");
  const auto token = serve::add_token(flags.tokens, flags.add_token);
  if (!token) throw UsageError(token.error().message);
  fmt::print("{}\n", token.value());
  fmt::print(stderr, "{} may show this token, of which {} keeps the hash alone; a server that runs takes it after SIGHUP\n",
             flags.add_token, flags.tokens);
}

// Reads certificates, tokens and limits from their files again.
serve::Credentials read_credentials(const ServeFlags& flags) {
  serve::Credentials read;
  if (!flags.tokens.empty()) {
    if (flags.security.insecure) throw UsageError("--tokens needs TLS: without it everybody on the network path can read them");
    auto clients = serve::read_token_file(flags.tokens);
    if (!clients) throw UsageError("--tokens: " + clients.error().message);
    read.clients = std::move(clients).value();
  }
  read.listen = listen_config(flags.security, flags.listen, !read.clients.empty());
  for (const auto& client : read.clients) {
    for (const auto& hash : client.hashes) read.listen.named_tokens.push_back({client.name, hash});
  }
  if (!flags.config.peers.empty()) read.dial = connect_config(flags.security);
  return read;
}

void run_serve(const ServeFlags& flags) {
  keep_files_private();
  if (!flags.init_tls.empty()) return run_init_tls(flags);
  if (!flags.add_token.empty()) return run_add_token(flags);
  serve::ServeConfig config = flags.config;
  check_device_exists("--device", config.device);
  config.version = EPIPE_VERSION;
  config.build = build_labels();
  config.read_credentials = [&flags] { return read_credentials(flags); };
  serve::Credentials credentials = config.read_credentials();
  config.listen = std::move(credentials.listen);
  config.listen.sockets = transport::take_handed_over_sockets();
  config.dial = std::move(credentials.dial);
  config.clients = std::move(credentials.clients);
  config.renew = &renew_on_hangup();
  config.limits.memory_bytes = static_cast<std::uint64_t>(flags.memory_gb * 1e9);
  config.state.reuse_bytes = static_cast<std::uint64_t>(flags.reuse_gb * 1e9);
  if (flags.state_gb) config.state.bytes = static_cast<std::uint64_t>(*flags.state_gb * 1e9);
  if (!flags.models.empty()) config.scripts = install_scripts(flags.models);
  const auto& stop = stop_on_signals();
  try {
    serve::serve(config, stop, [&](int port) {
      const std::string host = flags.listen.substr(0, flags.listen.rfind(':'));
      fmt::print("listening on {}:{}{}\n", host, port, flags.security.insecure ? ", plaintext" : "");
      std::fflush(stdout);
    });
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

void run_session(const train::Registry& registry) {
  const auto config = serve::become_session();
  const auto& stop = stop_on_signals();
  serve::run_session(config, registry, stop);
}

void add_limit_flags(CLI::App& command, ServeFlags& flags) {
  auto& limits = flags.config.limits;
  command.add_option("--max-sessions", flags.config.max_sessions, "Clients at once")->check(positive_number())->capture_default_str();
  command
      .add_option("--share", flags.config.share,
                  "Sessions that one client certificate, or all holders of the token, may have at once; 0: half of --max-sessions for a "
                  "certificate, all for the token")
      ->check(number_from_zero())
      ->capture_default_str();
  command.add_option("--session-memory", flags.memory_gb, "GB each session may hold; 0: no limit")
      ->check(number_from_zero())
      ->capture_default_str();
  command.add_option("--session-time", limits.seconds, "Seconds a session may live; 0: no limit")
      ->check(number_from_zero())
      ->capture_default_str();
  command.add_option("--session-threads", limits.threads, "Threads a client may ask for")->check(positive_number())->capture_default_str();
  command.add_option("--idle-timeout", limits.idle_seconds, "Seconds a session waits for a command, or for its client to come back")
      ->check(positive_number())
      ->capture_default_str();
  command.add_option("--timeout", limits.timeout, "Seconds without a tensor within a step, after which the client counts as lost")
      ->check(positive_number())
      ->capture_default_str();
  command.add_option("--in-flight", limits.in_flight, "Micro-batches a session may hold between forward and backward")
      ->check(positive_number())
      ->capture_default_str();
  command.add_option("--max-message", limits.message_bytes, "Bytes of the largest message")
      ->check(positive_number())
      ->capture_default_str();
  command
      .add_option(
          "--drain-time", flags.config.drain_seconds,
          "Seconds for clients to save and leave when the server is told to end; 0: they are not asked, and continue with the next server")
      ->check(number_from_zero())
      ->capture_default_str();
}

}  // namespace

void add_serve_command(CLI::App& app, const train::Registry& registry) {
  auto flags = std::make_shared<ServeFlags>();  // owned by the callback as well
  flags->config.state_dir = "epipe-sessions";
  auto* command = app.add_subcommand("serve", "Hold the middle stages of clients' models (epipe train --connect)");
  command->add_option("--listen", flags->listen, "HOST:PORT; port 0: any free one")->capture_default_str();
  command->add_option("--init-tls", flags->init_tls, "Create certificates and a token in this folder, and exit");
  command->add_option("--name", flags->names, "With --init-tls: further names or addresses of this server")->delimiter(',');
  add_security_flags(*command, flags->security, true);
  command->add_option("--tokens", flags->tokens,
                      "File with a line for each person who shares the server: name, SHA-256 of the token, limits");
  command->add_option("--add-token", flags->add_token, "Add a person to --tokens, print the token, and exit");
  command->add_option("--state-dir", flags->config.state_dir, "Folder for the sessions' checkpoints")->capture_default_str();
  command
      ->add_option("--state-quota", flags->state_gb,
                   "GB of the disk for the checkpoints of all sessions, in equal shares for --max-sessions; those that ended longest ago "
                   "go first; 0: no limit; default: half of the disk space available to them")
      ->check(number_from_zero());
  command
      ->add_option(
          "--reuse-quota", flags->reuse_gb,
          "GB of the disk that each session may keep of its clients' activations (--reuse-activations), beside its checkpoints; 0: none")
      ->check(number_from_zero())
      ->capture_default_str();
  command
      ->add_option("--state-age", flags->config.state.days,
                   "Days after which a session's checkpoints are removed, unless it runs; 0: never")
      ->check(number_from_zero())
      ->capture_default_str();
  command->add_option("--models", flags->models, "Folder of TorchScript files (*.pt) that clients may train, each by its SHA-256");
  command->add_option("--device", flags->config.device, "Device of the sessions: cpu, cuda:0")->capture_default_str();
  command->add_option("--metrics", flags->config.metrics,
                      "HOST:PORT of /metrics for Prometheus and of /healthz, e.g. 127.0.0.1:9100; default: none");
  command->add_option("--peers", flags->config.peers, "Other servers that sessions may dial, HOST:PORT,...")->delimiter(',');
  add_limit_flags(*command, *flags);
  command->add_option("--audit-log", flags->config.audit_log,
                      "File to append a JSON line to for every session, refusal, drain and renewal: who, when, what, how much");
  add_admin_commands(*command);
  command->callback([flags, command] {
    if (command->get_subcommands().empty()) run_serve(*flags);
  });

  auto* session = app.add_subcommand("session", "Started by epipe serve");
  session->group("");  // not in --help
  session->callback([&registry] { run_session(registry); });
}

}  // namespace epipe::cli
