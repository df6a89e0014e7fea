// What a server that lies can do to its client: end the run, with a reason, and nothing else.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "support/machines.h"
#include "support/session_cases.h"
#include "train/coordinated.h"

namespace epipe::train {
namespace {

using session::Reply;
using testing::TempFolder;

using Tamper = std::function<void(const session::Command& command, Reply& reply)>;

// A participant whose replies are changed on their way out.
class Liar final : public session::Participant {
 public:
  Liar(session::ParticipantConfig config, Tamper tamper) : honest_(std::move(config)), tamper_(std::move(tamper)) {}
  Reply handle(const session::Command& command) override {
    Reply reply = honest_.handle(command);
    tamper_(command, reply);
    return reply;
  }
  bool ended() const override { return honest_.ended(); }

 private:
  session::WorkerParticipant honest_;
  Tamper tamper_;
};

// Worker 1, which lies.
class LyingServer final : public session::PeerConnector {
 public:
  LyingServer(const std::string& folder, Tamper tamper) {
    session::ParticipantConfig config;
    testing::make_trainers(config);
    config.checkpoints = folder;
    config.timeout = std::chrono::minutes(1);
    config.open_channel = [this](const session::ChannelRequest& request) { return exchange_.take(request.cut, request.attempt); };
    liar_ = std::make_unique<Liar>(std::move(config), std::move(tamper));
  }
  ~LyingServer() override {
    if (link_) link_->close();
    if (thread_.joinable()) thread_.join();
  }
  std::vector<int> workers() const override { return {1}; }
  std::vector<int> leaders() const override { return {}; }
  std::string name(int) const override { return "the server"; }
  std::vector<std::string> addresses() const override { return {}; }
  std::unique_ptr<transport::Link> command_channel(int) override {
    auto [here, there] = transport::make_inproc_link(4);
    link_ = std::move(there);
    thread_ = std::thread([this] {
      try {
        handle_commands(*link_, *liar_, std::chrono::minutes(1));
      } catch (const std::exception&) {
        // The client is gone.
      }
    });
    return std::move(here);
  }
  std::unique_ptr<transport::Link> data_channel(int cut, int, std::uint64_t attempt) override { return exchange_.take(cut, attempt); }

 private:
  testing::Exchange exchange_;
  std::unique_ptr<Liar> liar_;
  std::unique_ptr<transport::Link> link_;
  std::thread thread_;
};

class HostileServer : public ::testing::Test {
 protected:
  TrainConfig config(const std::string& name) const {
    auto run = testing::coordinated_run({0, 1, 0}, "none", folder_.file(name));
    run.max_steps = 2;
    run.reconnect = 0;
    return run;
  }
  TrainResult run_with(const Tamper& tamper, const std::string& name) {
    LyingServer server(folder_.file(name + "-state"), tamper);
    testing::Watcher watcher;
    return train(testing::registry(), config(name), watcher, watcher.stop, &server);
  }
  std::string error_with(const Tamper& tamper, const std::string& name) {
    try {
      run_with(tamper, name);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "nothing was noticed";
  }

  TempFolder folder_;
};

TEST_F(HostileServer, ThatTellsTheTruthChangesNothing) {
  testing::run(config("alone"));
  run_with([](const auto&, Reply&) {}, "honest");
  testing::expect_equal_weights(folder_.file("alone"), folder_.file("honest"));
}

TEST_F(HostileServer, CannotPutWeightsIntoLayersThatAreNotItsOwn) {
  const auto replaced_by = [](const model::NamedTensors& weights) -> Tamper {
    return [weights](const auto&, Reply& reply) {
      if (auto* const given = std::get_if<session::WeightsReply>(&reply)) given->weights = weights;
    };
  };
  const std::vector<std::pair<std::string, model::NamedTensors>> lies = {
      {"another's", {{"classifier.linear.weight", torch::zeros({10, 64})}}},
      {"none", {}},
      {"shape", {{"features.1.conv.weight", torch::zeros({7})}}},
  };
  for (const auto& [name, weights] : lies) {
    const std::string error = error_with(replaced_by(weights), name);
    EXPECT_NE(error.find("the server: layer "), std::string::npos) << name << ": " << error;
    EXPECT_FALSE(std::filesystem::exists(folder_.file(name) + "/model.safetensors")) << name;
  }
  const std::string of_type = error_with(
      [](const auto&, Reply& reply) {
        if (auto* const given = std::get_if<session::WeightsReply>(&reply)) {
          for (auto& [name, tensor] : given->weights) tensor = tensor.to(torch::kFloat64);
        }
      },
      "type");
  EXPECT_NE(of_type.find("is of another type"), std::string::npos) << of_type;
}

// A link that is slower or faster than it is costs time; an answer of another size is no answer.
TEST_F(HostileServer, CannotAnswerAProbeOfTheLinkWithOtherBytes) {
  for (const std::uint64_t bytes : {0, 1, 100'000}) {
    LyingServer server(folder_.file("state"), [bytes](const auto&, Reply& reply) {
      if (auto* const probed = std::get_if<session::LinkProbeReply>(&reply)) probed->bytes = session::probe_bytes(bytes);
    });
    AssembleOptions options;
    options.connector = &server;
    RunParts run = assemble(testing::registry(), config("probed"), std::move(options));
    run.coordinator->connect();
    try {
      run.coordinator->probe_link(1000, 5000);
      ADD_FAILURE() << bytes << " bytes were taken";
    } catch (const session::PeerFailed& error) {
      EXPECT_NE(std::string(error.what()).find("bytes in reply to a probe of the link, got"), std::string::npos) << error.what();
    }
  }
}

// Predictions of any size used to be read beside the client's own labels, wherever they came from.
TEST_F(HostileServer, HasNoSayInLossAndAccuracy) {
  const TrainResult honest = run_with([](const auto&, Reply&) {}, "honest");
  const TrainResult lied_to = run_with(
      [](const auto&, Reply& reply) {
        if (auto* const stepped = std::get_if<session::StepReply>(&reply)) {
          stepped->result.loss = 1e9;
          stepped->result.correct = 1e9;
          stepped->result.predictions = torch::zeros({100'000, 10});
        }
      },
      "lied");
  EXPECT_EQ(lied_to.val_loss, honest.val_loss);
  EXPECT_EQ(lied_to.val_accuracy, honest.val_accuracy);
  testing::expect_equal_weights(folder_.file("lied"), folder_.file("honest"));
}

TEST_F(HostileServer, GivesNormsOfItsOwnParametersAndThatAreNorms) {
  const auto with_norms = [](const std::function<void(std::map<std::string, double>&)>& change) -> Tamper {
    return [change](const auto&, Reply& reply) {
      if (auto* const stepped = std::get_if<session::StepReply>(&reply); stepped != nullptr && !stepped->norms.empty())
        change(stepped->norms);
    };
  };
  const std::string negative = error_with(with_norms([](auto& norms) { norms.begin()->second = -1e30; }), "negative");
  EXPECT_NE(negative.find("the squared norm of "), std::string::npos) << negative;
  const std::string foreign = error_with(with_norms([](auto& norms) { norms["classifier.linear.weight"] = 0; }), "foreign");
  EXPECT_NE(foreign.find("norms of parameters that are not its own"), std::string::npos) << foreign;
}

TEST_F(HostileServer, GivesSumsThatGradientsCanHave) {
  const auto audited_with = [&](const std::function<void(session::AuditPartResult&)>& change, const std::string& name) {
    LyingServer server(folder_.file(name + "-state"), [change](const auto&, Reply& reply) {
      if (auto* const audited = std::get_if<session::AuditReply>(&reply)) change(audited->result);
    });
    auto lied_to = config(name);
    lied_to.codec = "auto";
    testing::Watcher watcher;
    try {
      train(testing::registry(), lied_to, watcher, watcher.stop, &server);
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was noticed");
  };
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<std::string, std::function<void(session::AuditPartResult&)>>> lies = {
      {"negative",
       [](auto& result) {
         for (auto& sums : result.sums) sums[4] = -1;
       }},  // stage 1's square
      {"huge",
       [](auto& result) {
         for (auto& sums : result.sums) sums[4] = 1e300;
       }},
      {"nan",
       [inf](auto& result) {
         for (auto& sums : result.sums) sums[4] = inf;
       }},
      {"impossible",
       [](auto& result) {
         for (auto& sums : result.sums) sums[3] = 2 * sums[4] + 1;
       }},
      {"few",
       [](auto& result) {
         if (!result.sums.empty()) result.sums.pop_back();
       }},
      {"short",
       [](auto& result) {
         for (auto& sums : result.sums) sums.pop_back();
       }},
      {"curve",
       [](auto& result) {
         for (auto& curve : result.curves)
           for (double& error : curve) error = -1;
       }},
      {"long",
       [](auto& result) {
         for (auto& curve : result.curves) curve.push_back(0.1);
       }},
  };
  for (const auto& [name, lie] : lies) {
    const std::string error = audited_with(lie, name);
    EXPECT_NE(error.find("the server: "), std::string::npos) << name << ": " << error;
  }
  // Sums of stages that are the client's own are not looked at, nor losses, which are the last one's.
  EXPECT_EQ(audited_with(
                [](auto& result) {
                  for (auto& sums : result.sums) sums[1] = 1e100;
                  result.losses = {{1e300}};
                },
                "another's"),
            "nothing was noticed");
  EXPECT_EQ(audited_with([](auto&) {}, "honest"), "nothing was noticed");
  const auto first_audit = [&](const std::string& name) { return testing::metrics_in(folder_.file(name), "audit").at(0); };
  EXPECT_EQ(first_audit("another's"), first_audit("honest"));
}

TEST_F(HostileServer, CannotFillTheMetricsWithText) {
  run_with(
      [](const auto&, Reply& reply) {
        auto* const stepped = std::get_if<session::StepReply>(&reply);
        if (stepped == nullptr) return;
        for (auto& traffic : stepped->result.forward) traffic.form = "\x1b[2J" + std::string(100'000, 'x');
      },
      "form");
  for (const auto& line : testing::metrics_in(folder_.file("form"))) EXPECT_LT(line.dump().size(), 8000U);
}

}  // namespace
}  // namespace epipe::train
