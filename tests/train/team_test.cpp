// A run whose workers are in several processes, played by threads: what is lost on the way is done again, and the weights in the end are
// those of a run that nothing happened to.
#include "epipe/train/team.h"

#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <numeric>
#include <random>
#include <thread>

#include "epipe/base/queue.h"
#include "epipe/data/dataset.h"
#include "epipe/model/safetensors.h"
#include "epipe/train/follower.h"
#include "epipe/train/trainer.h"
#include "epipe/transport/inproc/inproc.h"
#include "support/bad_sample.h"
#include "support/temp_folder.h"

namespace epipe::train {
namespace {

using testing::TempFolder;
using transport::Link;
using transport::Lost;
using transport::Patience;

class ClientKilled : public std::exception {};

// What happens when the countdown of messages ends.
enum class Fault { kNone, kCutLink, kKillFollower, kKillClient };

struct Countdown {
  std::mutex mutex;
  int left = -1;  // messages until the fault; negative: none
  Fault fault = Fault::kNone;
  int happened = 0;

  // All that left the client, when somebody wants to see it.
  std::vector<Bytes>* seen = nullptr;
  void witness(const Bytes& message) {
    const std::lock_guard lock(mutex);
    if (seen != nullptr) seen->push_back(message);
  }

  // The fault that this message triggers. Only the client's own messages kill it.
  Fault tick(bool by_client) {
    const std::lock_guard lock(mutex);
    if (left > 0) --left;
    if (left != 0 || (fault == Fault::kKillClient && !by_client)) return Fault::kNone;
    left = -1;
    ++happened;
    return std::exchange(fault, Fault::kNone);
  }
};

// A link over which the countdown's fault comes. To a lost peer it looks as over a network: Lost, not Closed.
class DoomedLink final : public Link {
 public:
  using OnFault = std::function<void(Fault)>;
  DoomedLink(std::unique_ptr<Link> link, bool of_client, Countdown& countdown, OnFault on_fault)
      : link_(std::move(link)), of_client_(of_client), countdown_(countdown), on_fault_(std::move(on_fault)) {}

  void send(Bytes message) override {
    meet_fate();
    if (of_client_) countdown_.witness(message);
    try {
      link_->send(std::move(message));
    } catch (const Closed&) {
      throw_why();
    }
  }
  Bytes recv(Patience patience) override {
    try {
      return link_->recv(patience);
    } catch (const Closed&) {
      throw_why();
    }
  }
  void close() override {
    closed_here_ = true;
    link_->close();
  }

 private:
  void meet_fate() {
    const Fault fault = countdown_.tick(of_client_);
    if (fault == Fault::kNone) return;
    link_->close();
    if (fault == Fault::kKillClient) throw ClientKilled();
    if (on_fault_) on_fault_(fault);
    throw Lost("the link was cut");
  }
  [[noreturn]] void throw_why() const {
    if (closed_here_) throw Closed();
    throw Lost("the peer is gone");
  }

  std::unique_ptr<Link> link_;
  bool of_client_;
  Countdown& countdown_;
  OnFault on_fault_;
  std::atomic<bool> closed_here_ = false;
};

// One worker's process: a follower in a thread. It survives the loss of a link, not a kill.
class Process {
 public:
  Process(std::string checkpoints, std::function<std::unique_ptr<Link>(const WayRequest&)> way)
      : checkpoints_(std::move(checkpoints)), way_(std::move(way)) {}
  ~Process() { stop(); }

  void obey(std::unique_ptr<Link> client) {
    stop();
    if (!follower_) {
      FollowerConfig config;
      config.checkpoints = checkpoints_;
      config.way = way_;
      config.patience = std::chrono::seconds(5);
      follower_ = std::make_unique<Follower>(std::move(config));
    }
    link_ = std::move(client);
    thread_ = std::thread([this] {
      try {
        follow(*link_, *follower_, std::chrono::seconds(20));
      } catch (const std::exception&) {
        // The client is gone: the next one continues.
      }
      link_->close();
    });
  }
  void stop() {
    if (link_) link_->close();
    if (thread_.joinable()) thread_.join();
  }
  // Everything in memory is lost.
  void kill_when_stopped() { killed_ = true; }
  void bury() {
    if (!killed_.exchange(false)) return;
    stop();
    follower_ = nullptr;
  }

 private:
  std::string checkpoints_;
  std::function<std::unique_ptr<Link>(const WayRequest&)> way_;
  std::unique_ptr<Follower> follower_;
  std::unique_ptr<Link> link_;
  std::thread thread_;
  std::atomic<bool> killed_ = false;
};

// Ends of ways that wait for their process.
class Exchange {
 public:
  std::unique_ptr<Link> take(int cut, std::uint64_t attempt) {
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
  std::map<std::pair<int, std::uint64_t>, std::vector<std::unique_ptr<Link>>> ends_;
};

class Machines final : public Reach {
 public:
  Machines(int workers, const std::string& folder, Countdown& countdown) : countdown_(countdown) {
    for (int w = 1; w < workers; ++w) {
      processes_.push_back(std::make_unique<Process>(folder + "/worker-" + std::to_string(w), [this](const WayRequest& way) {
        return doomed(exchange_.take(way.cut, way.attempt), false, way.worker);
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
  std::unique_ptr<Link> command(int worker) override {
    for (const auto& process : processes_) process->bury();
    auto [here, there] = transport::make_inproc_link(4);
    process(worker).obey(doomed(std::move(there), false, worker));
    return doomed(std::move(here), true, worker);
  }
  std::unique_ptr<Link> way(int cut, int peer, std::uint64_t attempt) override { return doomed(exchange_.take(cut, attempt), true, peer); }

 private:
  std::unique_ptr<Link> doomed(std::unique_ptr<Link> link, bool of_client, int worker) {
    return std::make_unique<DoomedLink>(std::move(link), of_client, countdown_, [this, worker](Fault fault) {
      if (fault == Fault::kKillFollower) process(worker).kill_when_stopped();
    });
  }
  Process& process(int worker) { return *processes_.at(static_cast<std::size_t>(worker) - 1); }

  Countdown& countdown_;
  Exchange exchange_;
  std::vector<std::unique_ptr<Process>> processes_;
};

class Silent final : public Observer {
 public:
  void on_step(const Progress&) override {}
  void on_epoch(const EpochResult&) override {}
  void on_note(const std::string& text) override { notes.push_back(text); }
  std::vector<std::string> notes;
};

TrainConfig config_for(const std::vector<int>& place, const std::string& codec, const std::string& folder) {
  TrainConfig config;
  config.model = "cnn";
  config.place = place;
  config.chunks = 2;
  config.batch = 16;
  config.codec = codec;
  config.run_dir = folder;
  config.seed = 5;
  config.update.momentum = 0.9;
  config.clip = 1;
  config.max_steps = 8;
  config.checkpoint_every = 3;
  config.timeout = 5;
  config.reconnect = 20;
  config.error_every = 0;
  return config;
}

void expect_equal_weights(const std::string& a, const std::string& b) {
  const auto left = model::read_safetensors(a + "/model.safetensors");
  const auto right = model::read_safetensors(b + "/model.safetensors");
  ASSERT_TRUE(left.ok() && right.ok());
  ASSERT_EQ(left.value().tensors.size(), right.value().tensors.size());
  for (const auto& [name, tensor] : left.value().tensors) EXPECT_TRUE(torch::equal(tensor, right.value().tensors.at(name))) << name;
}

class Team_ : public ::testing::TestWithParam<std::pair<std::vector<int>, std::string>> {};

// The run with all workers in one process.
std::string undisturbed(const TempFolder& folder) {
  const auto& [place, codec] = Team_::GetParam();
  const std::string path = folder.file("one");
  Silent observer;
  const std::atomic<bool> stop = false;
  train(config_for(place, codec, path), observer, stop);
  return path;
}

TEST_P(Team_, OfSeveralProcessesTrainsAsOneProcess) {
  const TempFolder folder;
  const std::string expected = undisturbed(folder);
  Countdown never;
  Machines machines(*std::max_element(GetParam().first.begin(), GetParam().first.end()) + 1, folder.file("state"), never);
  Silent observer;
  const std::atomic<bool> stop = false;
  const auto config = config_for(GetParam().first, GetParam().second, folder.file("several"));
  train(config, observer, stop, &machines);
  expect_equal_weights(expected, config.run_dir);
  EXPECT_TRUE(observer.notes.empty());
}

TEST_P(Team_, LosesNothingWhateverIsLostAndWhenever) {
  const TempFolder folder;
  const std::string expected = undisturbed(folder);
  std::mt19937 random(7);
  const int rounds = std::getenv("EPIPE_LONG_TESTS") != nullptr ? 12 : 3;  // one of each kind
  const int workers = *std::max_element(GetParam().first.begin(), GetParam().first.end()) + 1;
  int faults = 0;
  for (int round = 0; round < rounds; ++round) {
    const Fault fault = std::array{Fault::kCutLink, Fault::kKillFollower, Fault::kKillClient}[static_cast<std::size_t>(round) % 3];
    SCOPED_TRACE(::testing::Message() << "round " << round);
    auto config = config_for(GetParam().first, GetParam().second, folder.file("run-" + std::to_string(round)));
    Countdown countdown;
    Machines machines(*std::max_element(config.place.begin(), config.place.end()) + 1, config.run_dir + "/state", countdown);
    bool finished = false;
    for (int life = 0; !finished && life < 60; ++life) {
      {
        const std::lock_guard lock(countdown.mutex);
        countdown.left = std::uniform_int_distribution<int>(1, 150 * workers)(random);  // about what an undisturbed life takes
        countdown.fault = fault;
      }
      Silent observer;
      const std::atomic<bool> stop = false;
      try {
        config.resume = life > 0 && !Checkpoints(config.run_dir + "/checkpoints").steps().empty();
        train(config, observer, stop, &machines);
        finished = true;
      } catch (const ClientKilled&) {
        // Starts again.
      }
    }
    ASSERT_TRUE(finished);
    faults += countdown.happened;
    expect_equal_weights(expected, config.run_dir);
  }
  EXPECT_GE(faults, rounds) << "the test must have tested something";
  std::cout << faults << " faults\n";
}

// An infinite pixel makes step 3 a step that is not finite, in the client's own stages and in all others.
TEST_P(Team_, SkipsAStepTogetherWhateverIsLost) {
  const TempFolder folder;
  testing::write_data_with_a_bad_sample(folder.path(), 16 * 8, 16 * 3 + 1);
  const auto configured = [&](const std::string& name) {
    auto config = config_for(GetParam().first, GetParam().second, folder.file(name));
    config.data = "npy:" + folder.path();
    config.shuffle = false;
    config.loss_scaling = "on";
    return config;
  };
  Silent observer;
  const std::atomic<bool> stop = false;
  EXPECT_EQ(train(configured("one"), observer, stop).skipped, 1U);
  const auto config = configured("several");
  Countdown countdown;
  const int peers = *std::max_element(config.place.begin(), config.place.end());
  const int per_step = 4 * static_cast<int>(config.place.size() - 1) + 4 * peers;  // two chunks, two ways; two commands, two answers
  countdown.left = 6 * peers + 3 * per_step + per_step / 2;                        // in the middle of the skipped step
  countdown.fault = Fault::kCutLink;
  Machines machines(*std::max_element(config.place.begin(), config.place.end()) + 1, folder.file("state"), countdown);
  train(config, observer, stop, &machines);
  EXPECT_EQ(countdown.happened, 1);
  expect_equal_weights(folder.file("one"), config.run_dir);
}

TEST(Team, InMixedPrecisionTrainsAsOneProcess) {
  const TempFolder folder;
  Silent observer;
  const std::atomic<bool> stop = false;
  auto config = config_for({0, 1, 2, 0}, "none", folder.file("one"));
  config.precision = "bf16";
  train(config, observer, stop);
  config.run_dir = folder.file("several");
  Countdown never;
  Machines machines(3, folder.file("state"), never);
  train(config, observer, stop, &machines);
  expect_equal_weights(folder.file("one"), config.run_dir);
}

bool appears(const torch::Tensor& values, const std::vector<Bytes>& messages) {
  const auto bytes = values.contiguous();
  const auto* const begin = static_cast<const std::byte*>(bytes.data_ptr());
  const auto* const end = begin + bytes.nbytes();
  return std::any_of(messages.begin(), messages.end(),
                     [&](const Bytes& message) { return std::search(message.begin(), message.end(), begin, end) != message.end(); });
}

// Everything that leaves the client in a run of one step over these stages.
std::vector<Bytes> sent_by_client(const std::vector<int>& place, const TempFolder& folder) {
  auto config = config_for(place, "none", folder.file("run"));
  config.chunks = 1;
  config.max_steps = 1;
  config.shuffle = false;
  Countdown never;
  std::vector<Bytes> seen;
  never.seen = &seen;
  Machines machines(*std::max_element(place.begin(), place.end()) + 1, folder.file("state"), never);
  Silent observer;
  const std::atomic<bool> stop = false;
  train(config, observer, stop, &machines);
  return seen;
}

layer::Batch first_batch() {
  std::vector<std::int64_t> ids(16);
  std::iota(ids.begin(), ids.end(), 0);
  return data::make_synthetic(data::DataSpec::Kind::kImages, 5).train->batch(ids);
}

TEST(Privacy, NeitherInputsNorLabelsLeaveTheClient) {
  const TempFolder folder;
  const auto seen = sent_by_client({0, 1, 0}, folder);
  const auto batch = first_batch();
  EXPECT_GT(seen.size(), 5U) << "commands and activations were seen";
  for (std::int64_t i = 0; i < 16; ++i) EXPECT_FALSE(appears(batch.inputs[0][i].flatten().slice(0, 0, 16), seen)) << "sample " << i;
  for (const auto type : {torch::kInt64, torch::kInt32, torch::kFloat32, torch::kUInt8}) {
    EXPECT_FALSE(appears(batch.targets.to(type), seen)) << type;
  }
}

// The test above can fail: a chain's last worker, which has the loss, is sent the labels.
TEST(Privacy, LabelsGoToAClustersLastWorker) {
  const TempFolder folder;
  EXPECT_TRUE(appears(first_batch().targets, sent_by_client({0, 1}, folder)));
}

INSTANTIATE_TEST_SUITE_P(
    RingsAndChains, Team_,
    ::testing::Values(std::pair{std::vector{0, 1, 0}, std::string("none")}, std::pair{std::vector{0, 1, 0}, std::string("sort:6+2")},
                      std::pair{std::vector{0, 1, 0}, std::string("power:2")}, std::pair{std::vector{0, 1, 2}, std::string("sort:6+2")},
                      std::pair{std::vector{0, 1, 2, 0}, std::string("power:2")}, std::pair{std::vector{0, 1, 2, 3}, std::string("none")}));

}  // namespace
}  // namespace epipe::train
