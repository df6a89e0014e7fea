#include "epipe/serve/client_links.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "epipe/base/clock.h"
#include "epipe/transport/connector.h"

namespace epipe::serve {
namespace {

using transport::Incoming;
using transport::Refusal;

constexpr transport::Timeout kAnswer = std::chrono::seconds(10);  // for a running session to answer

std::string socket_path(const std::string& address) { return address.substr(std::string_view("unix:").size()); }

// A measurement is for the client that asked for it, and nobody comes back to it.
bool is_measurement(const RunningSession& session) { return session.purpose == SessionConfig::Purpose::kMeasureLink; }

// A new session takes a moment to listen, and another until its socket accepts connections. A running session that does not answer hangs.
std::unique_ptr<transport::Link> open_inner(const RunningSession& session, const Incoming& incoming) {
  transport::ConnectConfig dial;
  dial.address = session.socket;
  dial.insecure = true;
  dial.connect_timeout = kAnswer;
  dial.send_timeout = ClientLinks::send_timeout(session.limits);
  const std::string path = socket_path(session.socket);
  for (const Stopwatch watch;; std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
    const bool listens = ::access(path.c_str(), F_OK) == 0;
    try {
      if (listens) return transport::Connector(dial).open(incoming.metadata());
    } catch (const transport::Refused&) {
      throw;
    } catch (const transport::ConnectionLost&) {
      if (watch.seconds() > std::chrono::duration<double>(kAnswer).count()) {
        throw std::runtime_error(fmt::format("it does not take a link within {} s", kAnswer.count() / 1000));
      }
    }
    if (!listens && watch.seconds() > kStartSeconds) throw std::runtime_error("it did not start in time");
    if (::kill(session.pid, 0) != 0) throw std::runtime_error("its process is gone");
    if (is_measurement(session) && incoming.gone()) throw std::runtime_error("its client is gone");
  }
}

}  // namespace

ClientLinks::~ClientLinks() {
  for (auto& connecting : connecting_) connecting.thread.join();
}

void ClientLinks::connect(const std::shared_ptr<Incoming>& asking, const RunningSession& session) {
  Connecting connecting;
  connecting.session = session.name;
  const std::lock_guard lock(mutex_);
  connecting.thread = std::thread([this, session, done = connecting.done, asking] {
    open(*asking, session);
    *done = true;
  });
  connecting_.push_back(std::move(connecting));
}

void ClientLinks::open(Incoming& incoming, const RunningSession& session) {
  try {
    auto inner = open_inner(session, incoming);
    const auto on_piece = [this, activity = session.activity](bool from_client, std::size_t bytes) {
      activity->message(from_client, bytes);
      metrics_.relayed(from_client, bytes);
    };
    auto relay = std::make_unique<transport::Relay>(incoming.accept(), std::move(inner), transport::Relay::Observer{.on_piece = on_piece});
    session.activity->opened();
    const std::lock_guard lock(mutex_);
    connected_.push_back({session.name, std::move(relay), is_measurement(session) ? std::optional(session) : std::nullopt});
  } catch (const transport::Refused& refused) {
    metrics_.refused(refused.why());
    refusals_.add(incoming.peer(), refused.what());
    incoming.refuse(refused.why(), "the session: " + std::string(refused.what()));
  } catch (const std::exception& error) {
    on_hang_(session, error.what());
    incoming.refuse(Refusal::kOther, "the session did not answer and was ended; connect again");
  }
}

transport::Timeout ClientLinks::send_timeout(const SessionLimits& limits) {
  return transport::Timeout(static_cast<std::int64_t>(1000 * std::max(limits.idle_seconds, limits.timeout)));
}

int ClientLinks::count(const std::string& session) const {
  const std::lock_guard lock(mutex_);
  const auto of_session = [&](const auto& entry) { return entry.session == session; };
  return static_cast<int>(std::count_if(connecting_.begin(), connecting_.end(), of_session) +
                          std::count_if(connected_.begin(), connected_.end(), of_session));
}

int ClientLinks::opening() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(connecting_.size());
}

int ClientLinks::open() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(connected_.size());
}

void ClientLinks::close(const std::string& session, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  for (const Connected& connected : connected_) {
    if (connected.session == session) connected.relay->close(reason);
  }
}

// Joins relays without the lock: a relay that ends waits for its peers.
void ClientLinks::clear() {
  std::list<Connecting> done;
  std::list<Connected> ended;
  const auto take = [](auto& from, auto& to, const auto& is_over) {
    for (auto entry = from.begin(); entry != from.end();) {
      const auto next = std::next(entry);
      if (is_over(*entry)) to.splice(to.end(), from, entry);
      entry = next;
    }
  };
  {
    const std::lock_guard lock(mutex_);
    take(connecting_, done, [](const Connecting& connecting) { return connecting.done->load(); });
    take(connected_, ended, [](const Connected& connected) { return connected.relay->ended(); });
  }
  for (const Connected& connected : ended) {
    if (connected.measurement) on_measured_(*connected.measurement);
  }
  for (auto& connecting : done) connecting.thread.join();
}

}  // namespace epipe::serve
