#include <stdexcept>

#include "epipe/transport/connector.h"
#include "epipe/transport/listener.h"
#include "epipe/transport/relay.h"
#include "epipe/transport/tls_files.h"

// Linked in builds without gRPC.
namespace epipe::transport {
namespace {

constexpr const char* kMissing =
    "this epipe was built without gRPC: install libgrpc++-dev, protobuf-compiler-grpc and libssl-dev, then rebuild";

[[noreturn]] void missing() { throw std::runtime_error(kMissing); }

}  // namespace

class ServerStream {};

struct Connector::State {};
Connector::Connector(ConnectConfig) { missing(); }
Connector::~Connector() = default;
std::unique_ptr<Link> Connector::open(const std::map<std::string, std::string>&) { missing(); }

struct Listener::State {};
Listener::Listener(ListenConfig, OnIncoming) { missing(); }
Listener::~Listener() = default;
int Listener::port() const { return 0; }
bool Listener::alive() const { return false; }
void Listener::set_serving(bool) {}
void Listener::renew(const ListenConfig&) {}
void Listener::shutdown(Timeout) {}

Incoming::Incoming(std::shared_ptr<ServerStream>) { missing(); }
Incoming::~Incoming() = default;
Incoming::Incoming(Incoming&&) noexcept = default;
const std::map<std::string, std::string>& Incoming::metadata() const { missing(); }
const std::string& Incoming::peer() const { missing(); }
const std::string& Incoming::certificate_name() const { missing(); }
const std::string& Incoming::credential() const { missing(); }
const std::string& Incoming::token_name() const { missing(); }
bool Incoming::gone() const { missing(); }
std::unique_ptr<Link> Incoming::accept() { missing(); }
void Incoming::refuse(Refusal, const std::string&) {}

void close_because(Link& link, const std::string&) { link.close(); }

struct Relay::State {};
Relay::Relay(std::unique_ptr<Link>, std::unique_ptr<Link>, Observer) { missing(); }
Relay::~Relay() = default;
void Relay::close(const std::string&) {}
bool Relay::ended() const { return true; }

Result<std::int64_t> certificate_expiry(const std::string&) { return Error{ErrorCode::kIo, kMissing}; }
Result<void> init_tls(const std::string&, const std::vector<std::string>&) { return Error{ErrorCode::kIo, kMissing}; }

}  // namespace epipe::transport
