#include "epipe/serve/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <mutex>

#include "epipe/base/clock.h"
#include "epipe/base/queue.h"
#include "epipe/serve/admission.h"
#include "epipe/serve/channel_broker.h"
#include "epipe/serve/child.h"
#include "epipe/serve/log.h"
#include "epipe/serve/session_report.h"
#include "epipe/session/servers.h"
#include "epipe/session/worker_participant.h"
#include "epipe/train/spec_trainer.h"
#include "epipe/transport/connector.h"
#include "epipe/transport/listener.h"
#include "epipe/transport/measure_link.h"

namespace epipe::serve {
namespace {

using transport::Incoming;
using transport::Link;
using transport::Refusal;
using transport::Timeout;

// A client that was refused, or lost before it began, leaves nothing to continue: its place is freed for others.
constexpr double kNothingSeconds = 2;

Timeout timeout_of(double seconds) { return Timeout(static_cast<std::int64_t>(seconds * 1000)); }

template <typename T>
bool parse(const std::map<std::string, std::string>& about, const std::string& key, T& value) {
  const auto found = about.find(key);
  if (found == about.end()) return false;
  const std::string& text = found->second;
  const auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  return status == std::errc() && stop == text.data() + text.size();
}

// The program's registry, plus the TorchScript files the operator installed.
train::Registry with_scripts(train::Registry registry, const model::ScriptFiles& scripts) {
  registry.models.replace(model::torchscript_entry(scripts));
  return registry;
}

class Session {
 public:
  Session(SessionConfig config, const train::Registry& registry, const std::atomic<bool>& drain)
      : config_(std::move(config)),
        registry_(with_scripts(registry, config_.scripts)),
        drain_(drain),
        participant_(participant_config()),
        listener_(listen_config(), [this](Incoming i) { receive(std::move(i)); }) {}

  void run() {
    double seconds = config_.limits.idle_seconds;
    while (!participant_.ended()) {
      const auto client = next_client(seconds);
      if (!client) break;
      serve(*client);
      seconds = std::min(config_.limits.idle_seconds, participant_.holds_run() ? config_.limits.idle_seconds : kNothingSeconds);
    }
  }

 private:
  transport::ListenConfig listen_config() const {
    transport::ListenConfig listen;
    listen.address = config_.socket;
    listen.insecure = true;                                   // a Unix socket in a folder of the server's user
    listen.max_message_bytes = config_.limits.message_bytes;  // here: the server relays pieces of messages
    listen.send_timeout = timeout_of(std::max(config_.limits.idle_seconds, config_.limits.timeout));
    return listen;
  }

  session::ParticipantConfig participant_config() {
    train::SpecTrainerConfig trainer;
    trainer.registry = &registry_;
    trainer.admit = [this](const nlohmann::json& spec, int worker) { admit(spec, worker, config_.limits, registry_.models); };
    trainer.device = torch::Device(config_.device);
    trainer.activations = config_.state_dir + "/activations";
    trainer.activation_bytes = config_.reuse_bytes;
    session::ParticipantConfig participant;
    participant.activations = trainer.activations;
    make_trainers_from_specs(participant, std::move(trainer));
    participant.open_channel = [this](const session::ChannelRequest& request) { return open_channel(request); };
    participant.checkpoints = config_.state_dir + "/checkpoints";
    participant.log = [](const std::string& error) { log("{}", error); };
    participant.checkpoint_bytes = config_.state_bytes;
    participant.timeout = timeout_of(config_.limits.timeout);
    participant.drain = &drain_;
    return participant;
  }

  // Called by the listener's thread.
  void receive(Incoming incoming) {
    const auto& about = incoming.metadata();
    const auto channel = about.find("channel");
    ChannelBroker::Key key;
    if (channel != about.end() && channel->second == "commands") {
      // The newest client counts: an older one is the same client before its link was lost.
      const std::lock_guard lock(mutex_);
      if (serving_ != nullptr) {
        serving_->close();
        channels_.give_up();
      }
      while (clients_.pop_within(std::chrono::milliseconds(0))) continue;
      clients_.push(incoming.accept());
    } else if (channel != about.end() && channel->second == "data" && parse(about, "attempt", key.attempt) &&
               parse(about, "cut", key.cut) && parse(about, "from", key.from)) {
      channels_.put(key, incoming.accept());
    } else {
      incoming.refuse(Refusal::kNotFound, "a session has a command channel and data channels, nothing else");
    }
  }

  std::unique_ptr<Link> next_client(double seconds) {
    const Stopwatch watch;
    while (watch.seconds() < seconds && !drain_) {
      if (auto client = clients_.pop_within(std::chrono::milliseconds(200))) return std::move(*client);
    }
    log("{}", drain_ ? "draining: nobody is connected" : "idle for too long");
    return nullptr;
  }

  void serve(Link& client) {
    {
      const std::lock_guard lock(mutex_);
      serving_ = &client;
      channels_.begin();
    }
    try {
      handle_commands(client, counting_, timeout_of(config_.limits.idle_seconds));
    } catch (const transport::ConnectionLost& lost) {
      log("lost the client: {}", lost.what());
    } catch (const transport::TimedOut&) {
      log("no command for {} s", config_.limits.idle_seconds);
    } catch (const Closed&) {
      log("the client connected again");
    } catch (const std::exception& error) {
      log("ended the client's link: {}", error.what());
    }
    {
      const std::lock_guard lock(mutex_);
      serving_ = nullptr;
    }
    client.close();
    participant_.disconnect();
  }

  // The client opens its data channels; between two servers the lower worker connects.
  std::unique_ptr<Link> open_channel(const session::ChannelRequest& request) {
    if (request.peer == 0 || request.peer < request.worker) {
      return channels_.take({request.attempt, request.cut, request.peer}, timeout_of(config_.limits.timeout));
    }
    if (std::find(config_.peers.begin(), config_.peers.end(), request.address) == config_.peers.end()) {
      throw std::invalid_argument(
          fmt::format("this server may not dial {}; its operator allows that with --peers {}", request.address, request.address));
    }
    transport::ConnectConfig dial = config_.dial;
    dial.address = request.address;
    transport::Connector connector(dial);
    return connector.open(
        session::data_channel_metadata({config_.name, config_.ticket}, request.worker, request.peer, request.cut, request.attempt));
  }

  SessionConfig config_;
  const train::Registry registry_;
  const std::atomic<bool>& drain_;
  ChannelBroker channels_;
  std::mutex mutex_;         // guards serving_
  Link* serving_ = nullptr;  // the client's commands
  Queue<std::unique_ptr<Link>> clients_{16};
  session::WorkerParticipant participant_;
  CountingParticipant counting_{participant_, STDOUT_FILENO};
  transport::Listener listener_;  // last: its thread uses all members above
};

// Answers the first client that comes. The server ends it when its time is up.
void measure(const SessionConfig& config) {
  Queue<std::unique_ptr<Link>> clients(1);
  transport::ListenConfig listen;
  listen.address = config.socket;
  listen.insecure = true;
  listen.max_message_bytes = transport::kMaxMeasuredBytes;
  listen.send_timeout = timeout_of(config.limits.timeout);
  transport::Listener listener(listen, [&](Incoming incoming) { clients.push(incoming.accept()); });
  const auto client = clients.pop_within(timeout_of(config.limits.idle_seconds));
  if (client) transport::serve_measurement(**client, timeout_of(config.limits.idle_seconds));
}

}  // namespace

void run_session(const SessionConfig& config, const train::Registry& registry, const std::atomic<bool>& drain) {
  std::signal(SIGPIPE, SIG_IGN);  // if nobody reads the log any more
  switch (config.purpose) {
    case SessionConfig::Purpose::kTrain: return Session(config, registry, drain).run();
    case SessionConfig::Purpose::kMeasureLink: return measure(config);
    case SessionConfig::Purpose::kSayItsSize: fmt::print("{}", held_bytes(::getpid())); std::fflush(stdout);
  }
}

}  // namespace epipe::serve
