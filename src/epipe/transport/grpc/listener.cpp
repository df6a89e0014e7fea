#include "epipe/transport/listener.h"

#include <fmt/format.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "epipe/base/queue.h"
#include "epipe/transport/grpc/acceptor.h"
#include "epipe/transport/grpc/endpoint.h"
#include "epipe/transport/grpc/grpc_link.h"
#include "epipe/transport/grpc/metadata.h"
#include "epipe/transport/grpc/server_stream.h"

namespace epipe::transport {
namespace {

constexpr const char* kShuttingDown = "the listener is shutting down";

using Streams = Queue<std::shared_ptr<ServerStream>>;

bool same_certificates(const ListenConfig& a, const ListenConfig& b) {
  const auto same = [](const Identity& x, const Identity& y) { return x.certificate_pem == y.certificate_pem && x.key_pem == y.key_pem; };
  return a.client_ca_pem == b.client_ca_pem && a.identity.has_value() == b.identity.has_value() &&
         (!a.identity || same(*a.identity, *b.identity));
}

// Refuses a stream.
class Refuser final : public ::grpc::ServerGenericBidiReactor {
 public:
  explicit Refuser(const ::grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

// A gRPC server with one certificate. Connections stay with the server that took them, so renewed certificates need another one.
class CertifiedServer final : public ::grpc::CallbackGenericService {
 public:
  using Create = std::function<::grpc::ServerGenericBidiReactor*(::grpc::GenericCallbackServerContext*, CertifiedServer&)>;
  CertifiedServer(const ListenConfig& config, const Address& address, Create create) : create_(std::move(create)) {
    using Type = ::grpc::ServerBuilder::experimental_type::ExternalConnectionType;
    const auto credentials = server_credentials(config, address);
    ::grpc::ServerBuilder builder;
    if (address.is_unix) {
      builder.AddListeningPort(address.text, credentials);
    } else {
      connections_ = builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, credentials);
    }
    builder.RegisterCallbackGenericService(this);
    set_arguments(builder, config);
    server_ = builder.BuildAndStart();
    if (!server_)
      throw std::runtime_error(fmt::format("cannot listen on {}: the address is taken, or not of this machine", config.address));
  }

  // Takes ownership of a TCP connection.
  void take(int fd) {
    ::grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    connections_->HandleNewConnection(&connection);
  }
  void set_serving(bool serving) {
    if (auto* const health = server_->GetHealthCheckService()) health->SetServingStatus(serving);
  }
  void shutdown(Timeout grace) { server_->Shutdown(std::chrono::system_clock::now() + grace); }

  std::atomic<int> streams = 0;  // open ones

 private:
  ::grpc::ServerGenericBidiReactor* CreateReactor(::grpc::GenericCallbackServerContext* context) override {
    return create_(context, *this);
  }

  const Create create_;
  std::unique_ptr<::grpc::experimental::ExternalConnectionAcceptor> connections_;  // null for Unix sockets
  std::unique_ptr<::grpc::Server> server_;
};

// Authenticates clients and hands their streams to the listener's thread.
struct Listener::State {
  State(ListenConfig given, OnIncoming handler)
      : config(std::move(given)), on_incoming(std::move(handler)), asking(static_cast<std::size_t>(config.max_streams) + 1) {}

  ::grpc::ServerGenericBidiReactor* create(::grpc::GenericCallbackServerContext* context, CertifiedServer& server);
  ::grpc::ServerGenericBidiReactor* refuse(const ::grpc::GenericCallbackServerContext& context, const ::grpc::Status& status) const;
  ::grpc::Status check(const ::grpc::GenericCallbackServerContext& context, bool known) const;
  // The name of its token, or "" if it is admitted otherwise; nullopt if it is not admitted.
  std::optional<std::string> find_client(const ::grpc::GenericCallbackServerContext& context) const;
  void listen();
  std::unique_ptr<CertifiedServer> make_server(const ListenConfig& certified);
  void renew(const ListenConfig& renewed);
  void retire_servers();
  Acceptor::Handlers handlers();
  void answer();
  void stop();

  const ListenConfig config;
  const OnIncoming on_incoming;
  Streams asking;
  mutable std::mutex mutex;
  std::set<ServerStream*> open;          // guarded by the mutex; each stays until gRPC is done with it
  bool stopped = false;                  // likewise
  bool serving = true;                   // likewise
  std::vector<std::string> tokens;       // likewise
  std::vector<NamedToken> named_tokens;  // likewise
  ListenConfig certificates;             // of the newest server; used only by the renewing thread
  std::mutex taking;                     // held while the newest server takes a connection
  std::vector<std::unique_ptr<CertifiedServer>>
      servers;                         // used only by the renewing thread; the last takes connections, others keep theirs
  std::unique_ptr<Acceptor> acceptor;  // of TCP; null for Unix sockets
  std::thread thread;
};

::grpc::ServerGenericBidiReactor* Listener::State::create(::grpc::GenericCallbackServerContext* context, CertifiedServer& server) {
  const auto client = find_client(*context);
  if (const auto status = check(*context, client.has_value()); !status.ok()) return refuse(*context, status);
  const std::lock_guard lock(mutex);
  if (stopped) return new Refuser(refusal_status(Refusal::kFull, kShuttingDown));
  if (open.size() >= static_cast<std::size_t>(config.max_streams)) {
    return refuse(*context, refusal_status(Refusal::kFull, fmt::format("all {} links are taken; try again later", config.max_streams)));
  }
  const auto forget = [this, &server](ServerStream* done) {
    const std::lock_guard guard(mutex);
    open.erase(done);
    --server.streams;
  };
  const auto stream = std::make_shared<ServerStream>(*context, config, *client, forget);
  open.insert(stream.get());
  ++server.streams;
  auto* const reactor = stream->start();
  asking.push(stream);
  return reactor;
}

::grpc::ServerGenericBidiReactor* Listener::State::refuse(const ::grpc::GenericCallbackServerContext& context,
                                                          const ::grpc::Status& status) const {
  if (config.on_refused) config.on_refused(context.peer(), refusal_of(status.error_code()), status.error_message());
  return new Refuser(status);
}

::grpc::Status Listener::State::check(const ::grpc::GenericCallbackServerContext& context, bool known) const {
  if (context.method() != kMethod) return {::grpc::StatusCode::UNIMPLEMENTED, "this is an epipe server; it has no such method"};
  if (!known) {
    const bool shown = !value_of(context.client_metadata(), kTokenKey).empty();
    return refusal_status(Refusal::kUnauthenticated, shown ? "the token is not one that this server takes"
                                                           : "a token or client certificate is needed, and there was none");
  }
  const std::string version = value_of(context.client_metadata(), kVersionKey).substr(0, 32);
  if (version == kVersion) return ::grpc::Status::OK;
  return refusal_status(Refusal::kVersion,
                        fmt::format("expected version {} of the protocol, got '{}'; use the same epipe on both sides", kVersion, version));
}

std::optional<std::string> Listener::State::find_client(const ::grpc::GenericCallbackServerContext& context) const {
  const std::lock_guard lock(mutex);
  const std::string token = value_of(context.client_metadata(), kTokenKey);
  if (auto name = name_of_token(named_tokens, token)) return name;
  const auto auth = context.auth_context();
  const bool open_to_all = config.insecure && tokens.empty() && named_tokens.empty();
  const bool certified = !config.insecure && auth && auth->IsPeerAuthenticated();
  return open_to_all || certified || any_token(tokens, token) ? std::optional(std::string()) : std::nullopt;
}

void Listener::State::listen() {
  const Address address = parse_address(config.address);
  (void)server_credentials(config, address);  // reports invalid ones before the address is taken
  if (address.is_unix && !config.sockets.empty()) {
    throw std::invalid_argument(fmt::format("expected a TCP address for the socket that was handed over, got {}", config.address));
  }
  if (!address.is_unix) {
    acceptor = std::make_unique<Acceptor>(
        address, config.sockets, Acceptor::Limits{config.max_connections, config.max_per_address, config.keep_alive.timeout}, handlers());
  }
  tokens = config.tokens;
  named_tokens = config.named_tokens;
  certificates = config;
  servers.push_back(make_server(config));
  if (acceptor) acceptor->start();
}

std::unique_ptr<CertifiedServer> Listener::State::make_server(const ListenConfig& certified) {
  return std::make_unique<CertifiedServer>(
      certified, parse_address(config.address),
      [this](::grpc::GenericCallbackServerContext* context, CertifiedServer& server) { return create(context, server); });
}

void Listener::State::renew(const ListenConfig& renewed) {
  if (!acceptor || config.insecure) throw std::invalid_argument("a listener without TLS has no certificate to renew");
  ListenConfig certified = config;
  certified.identity = renewed.identity;
  certified.client_ca_pem = renewed.client_ca_pem;
  certified.tokens = renewed.tokens;
  certified.named_tokens = renewed.named_tokens;
  for (const auto& token : certified.tokens) (void)bearer(token);
  (void)server_credentials(certified, parse_address(config.address));
  auto server = same_certificates(certified, certificates) ? nullptr : make_server(certified);  // other tokens need no other server
  {
    const std::scoped_lock lock(taking, mutex);
    tokens = certified.tokens;
    named_tokens = certified.named_tokens;
    if (!server) return;
    server->set_serving(serving);
    servers.push_back(std::move(server));
    certificates = certified;
  }
  retire_servers();
}

// Servers without streams are shut down. The one before the newest may still get streams from connections that it just took, so it stays
// until the next renewal. So there are at most two servers, and one for each stream that outlives renewals.
void Listener::State::retire_servers() {
  constexpr std::size_t kKept = 2;
  std::vector<std::unique_ptr<CertifiedServer>> idle;
  {
    const std::scoped_lock lock(taking, mutex);
    for (std::size_t i = 0; i + kKept < servers.size();) {
      if (servers[i]->streams > 0) {
        ++i;
      } else {
        idle.push_back(std::move(servers[i]));
        servers.erase(servers.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
  }
  for (const auto& server : idle) server->shutdown(Timeout(0));  // without the lock: a stream that comes now takes it when it ends
}

Acceptor::Handlers Listener::State::handlers() {
  const auto accepted = [this](int fd) {
    const std::lock_guard lock(taking);  // not the mutex: gRPC may ask for a stream meanwhile
    servers.back()->take(fd);
  };
  const auto refused = [this](const std::string& peer, const std::string& reason) {
    if (config.on_refused) config.on_refused(peer, Refusal::kFull, reason);
  };
  return {accepted, refused};
}

// The listener's thread. A stream whose handler throws is refused.
void Listener::State::answer() {
  try {
    while (true) {
      Incoming incoming(asking.pop());
      try {
        on_incoming(std::move(incoming));
      } catch (const std::exception&) {
      }
    }
  } catch (const Closed&) {
    // The listener is shutting down.
  }
}

void Listener::State::stop() {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    const std::lock_guard lock(mutex);
    stopped = true;
    for (auto* const stream : open) streams.push_back(stream->shared_from_this());
  }
  asking.close();
  for (const auto& stream : streams) {
    static_cast<ServerStream&>(*stream).refuse(Refusal::kFull, kShuttingDown);
    stream->close(kShuttingDown);
  }
}

Listener::Listener(ListenConfig config, OnIncoming on_incoming) {
  prepare_grpc();
  if (config.max_streams < 1) throw std::invalid_argument(fmt::format("expected at least one stream, got {}", config.max_streams));
  for (const auto& token : config.tokens) (void)bearer(token);
  state_ = std::make_unique<State>(std::move(config), std::move(on_incoming));
  state_->listen();
  state_->thread = std::thread([state = state_.get()] { state->answer(); });
}

Listener::~Listener() { shutdown(); }

int Listener::port() const { return state_->acceptor ? state_->acceptor->port() : 0; }

bool Listener::alive() const { return !state_->acceptor || state_->acceptor->alive(); }

void Listener::set_serving(bool serving) {
  const std::lock_guard lock(state_->mutex);
  state_->serving = serving;
  for (const auto& server : state_->servers) server->set_serving(serving);
}

void Listener::renew(const ListenConfig& config) { state_->renew(config); }

void Listener::shutdown(Timeout grace) {
  if (state_->acceptor) state_->acceptor->stop();
  state_->stop();
  for (const auto& server : state_->servers) server->shutdown(grace);
  if (state_->thread.joinable()) state_->thread.join();
}

Incoming::Incoming(std::shared_ptr<ServerStream> stream) : stream_(std::move(stream)) {}
Incoming::Incoming(Incoming&&) noexcept = default;

Incoming::~Incoming() {
  if (stream_) stream_->refuse(Refusal::kOther, "the link was not accepted");
}

const std::map<std::string, std::string>& Incoming::metadata() const { return stream_->metadata(); }
const std::string& Incoming::peer() const { return stream_->peer(); }
const std::string& Incoming::certificate_name() const { return stream_->certificate_name(); }
const std::string& Incoming::credential() const { return stream_->credential(); }
const std::string& Incoming::token_name() const { return stream_->token_name(); }

bool Incoming::gone() const { return stream_->lost(); }

std::unique_ptr<Link> Incoming::accept() {
  stream_->accept();
  return std::make_unique<GrpcLink>(stream_, stream_->max_message_bytes());
}

void Incoming::refuse(Refusal why, const std::string& text) { stream_->refuse(why, text); }

}  // namespace epipe::transport
