#pragma once

#include <chrono>
#include <map>
#include <string>
#include <thread>

#include "epipe/session/peer_connector.h"
#include "epipe/session/worker_participant.h"
#include "epipe/transport/inproc/inproc.h"
#include "support/doomed_link.h"
#include "support/session_cases.h"

// The processes of a run, played by threads.
namespace epipe::testing {

// One worker's process: a participant in a thread. It survives the loss of a link, not a kill; in both cases its other links close, as a
// session's do, so nobody has to run out of timeout.
class Machine {
 public:
  Machine(std::string checkpoints, std::function<std::unique_ptr<transport::Link>(const session::ChannelRequest&)> open_channel)
      : checkpoints_(std::move(checkpoints)), open_channel_(std::move(open_channel)) {}
  ~Machine() { stop(); }

  void handle(std::unique_ptr<transport::Link> client) {
    stop();
    if (!participant_ || participant_->ended()) {
      session::ParticipantConfig config;
      make_trainers(config);
      config.checkpoints = checkpoints_;
      config.open_channel = open_channel_;
      config.timeout = std::chrono::minutes(1);
      participant_ = std::make_unique<session::WorkerParticipant>(std::move(config));
    }
    link_ = std::move(client);
    thread_ = std::thread([this] {
      try {
        handle_commands(*link_, *participant_, std::chrono::minutes(1));
      } catch (const std::exception&) {
        // The client is gone: the next one continues.
      }
      link_->close();
      participant_->disconnect();
    });
  }
  void stop() {
    if (link_) link_->close();
    if (thread_.joinable()) thread_.join();
  }
  // Everything in memory is lost.
  void kill_when_stopped() { killed_ = true; }
  void retire() {
    if (!killed_.exchange(false)) return;
    stop();
    participant_ = nullptr;
  }

 private:
  std::string checkpoints_;
  std::function<std::unique_ptr<transport::Link>(const session::ChannelRequest&)> open_channel_;
  std::unique_ptr<session::WorkerParticipant> participant_;
  std::unique_ptr<transport::Link> link_;
  std::thread thread_;
  std::atomic<bool> killed_ = false;
};

// Ends of data channels that wait for their process.
class Exchange {
 public:
  std::unique_ptr<transport::Link> take(int cut, std::uint64_t attempt) {
    const std::lock_guard lock(mutex_);
    auto& ends = ends_[{cut, attempt}];
    if (ends.empty()) {
      auto [one, other] = transport::make_inproc_link(64);
      ends.push_back(std::move(one));
      ends.push_back(std::move(other));
    }
    auto end = std::move(ends.back());
    ends.pop_back();
    if (ends.empty()) ends_.erase({cut, attempt});
    return end;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int, std::uint64_t>, std::vector<std::unique_ptr<transport::Link>>> ends_;
};

class Machines final : public session::PeerConnector {
 public:
  Machines(int workers, const std::string& folder, Countdown& countdown) : countdown_(countdown) {
    for (int w = 1; w < workers; ++w) {
      processes_.push_back(
          std::make_unique<Machine>(folder + "/worker-" + std::to_string(w), [this](const session::ChannelRequest& request) {
            return doomed(exchange_.take(request.cut, request.attempt), false, request.worker);
          }));
    }
  }
  std::vector<int> workers() const override {
    std::vector<int> all;
    for (std::size_t i = 0; i < processes_.size(); ++i) all.push_back(static_cast<int>(i) + 1);
    return all;
  }
  std::vector<int> leaders() const override { return {}; }
  std::string name(int worker) const override { return "worker " + std::to_string(worker); }
  std::vector<std::string> addresses() const override { return {}; }
  std::unique_ptr<transport::Link> command_channel(int worker) override {
    for (const auto& process : processes_) process->retire();
    auto [here, there] = transport::make_inproc_link(4);
    process(worker).handle(doomed(std::move(there), false, worker));
    return doomed(std::move(here), true, worker);
  }
  std::unique_ptr<transport::Link> data_channel(int cut, int peer, std::uint64_t attempt) override {
    return doomed(exchange_.take(cut, attempt), true, peer);
  }

 private:
  std::unique_ptr<transport::Link> doomed(std::unique_ptr<transport::Link> link, bool of_client, int worker) {
    return std::make_unique<DoomedLink>(std::move(link), of_client, countdown_, [this, worker](Fault fault) {
      if (fault == Fault::kKillParticipant) process(worker).kill_when_stopped();
    });
  }
  Machine& process(int worker) { return *processes_.at(static_cast<std::size_t>(worker) - 1); }

  Countdown& countdown_;
  Exchange exchange_;
  std::vector<std::unique_ptr<Machine>> processes_;
};

}  // namespace epipe::testing
