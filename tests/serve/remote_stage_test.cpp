// epipe::RemoteStage against a real server: a loop of one's own whose middle is there.
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <csignal>

#include "epipe/cli/security_flags.h"
#include "epipe/epipe.h"
#include "epipe/model/registry.h"
#include "epipe/session/peer.h"
#include "epipe/session/servers.h"
#include "epipe/train/plan.h"
#include "serve/split.h"

namespace epipe::serve {
namespace {

constexpr std::size_t kFirst = 1;
constexpr std::size_t kEnd = 3;

const data::DataSpec& data_spec() {
  static const data::DataSpec spec{data::DataSpec::Kind::kImages, {12}, 4, 0, false, {"accuracy"}};
  return spec;
}

class RemoteStageTest : public ::testing::Test {
 protected:
  RemoteStageTest() : split_(1), local_(model::builtin_models().make_model("mlp", data_spec(), 5)) { split_.start_server(0); }

  RemoteStageOptions options(const std::string& codec = "none") const {
    RemoteStageOptions o;
    o.connect = split_.address(0);
    o.model = "mlp";
    o.first_layer = kFirst;
    o.end_layer = kEnd;
    o.data.shape = data_spec().shape;
    o.data.classes = data_spec().classes;
    o.codec_forward = o.codec_backward = codec;
    o.tls = split_.file("tls");
    o.seed = 5;
    o.lr = 0.1;
    o.timeout = 20;
    return o;
  }
  // What reaches the stage in the whole model.
  torch::Tensor input(std::int64_t samples) { return run(0, kFirst, torch::randn({samples, 12})).detach(); }
  torch::Tensor run(std::size_t first, std::size_t end, torch::Tensor x) {
    layer::ForwardContext at;
    layer::Tensors tensors{std::move(x)};
    for (std::size_t l = first; l < end; ++l) tensors = local_.layers[l]->forward(tensors, at);
    return tensors[0];
  }
  std::vector<torch::Tensor> own_parameters() {
    std::vector<torch::Tensor> all;
    for (std::size_t l = kFirst; l < kEnd; ++l) {
      for (const auto& parameter : local_.layers[l]->parameters()) all.push_back(parameter);
    }
    return all;
  }
  void expect_same_weights(RemoteStage& stage) {
    const auto there = stage.weights();
    std::size_t compared = 0;
    for (std::size_t l = kFirst; l < kEnd; ++l) {
      for (const auto& item : local_.layers[l]->named_parameters()) {
        EXPECT_TRUE(torch::equal(there.at(local_.layers[l]->full_name(item.key())), item.value())) << item.key();
        ++compared;
      }
    }
    EXPECT_EQ(compared, there.size());
  }

  testing::Split split_;
  model::Model local_;
};

TEST_F(RemoteStageTest, ComputesAndLearnsWhatTheSameLayersHereDo) {
  RemoteStage stage(options());
  EXPECT_EQ(stage.layers().size(), kEnd - kFirst);
  torch::optim::SGD optimizer(own_parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    std::vector<std::uint32_t> numbers;
    std::vector<torch::Tensor> inputs;
    for (const int samples : {3, 5, 2}) {
      inputs.push_back(input(samples).requires_grad_());
      numbers.push_back(stage.forward(inputs.back().detach()));
    }
    for (const std::size_t i : {2U, 0U, 1U}) {  // in any order, the same here and there
      const auto y = run(kFirst, kEnd, inputs[i]);
      EXPECT_TRUE(torch::equal(stage.output(numbers[i]), y));
      const auto gradient = torch::randn_like(y);
      y.backward(gradient);
      stage.backward(numbers[i], gradient);
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) EXPECT_TRUE(torch::equal(stage.gradient(numbers[i]), inputs[i].grad()));
    optimizer.step();
    stage.step();
    expect_same_weights(stage);
  }
  EXPECT_EQ(stage.steps_done(), 3U);
  stage.end();
}

TEST_F(RemoteStageTest, EvaluatesInTheMiddleOfAStepAndDropsOne) {
  RemoteStage stage(options("ec:3"));
  const auto x = input(4);
  const auto dropped = stage.forward(x);
  const auto first = stage.output(dropped);
  stage.backward(dropped, torch::ones_like(first));
  const auto evaluated = stage.output(stage.forward(x, /*training=*/false));
  stage.discard();
  EXPECT_THROW(stage.step(), std::logic_error);
  const auto again = stage.forward(x);
  EXPECT_TRUE(torch::equal(stage.output(again), first)) << "its encoders are where they were";
  EXPECT_THROW(stage.gradient(again), std::logic_error);
  EXPECT_THROW(stage.output(dropped), std::logic_error);
  EXPECT_THROW(stage.step(), std::logic_error) << "its backward is missing";
  stage.backward(again, torch::ones_like(evaluated));
  EXPECT_THROW(stage.backward(again, torch::ones_like(evaluated)), std::logic_error);
  stage.step();
  EXPECT_EQ(stage.steps_done(), 1U);
  EXPECT_GT(stage.take_traffic().backward.at(0).wire_bytes, 0U);
}

TEST_F(RemoteStageTest, GoesBackWithAServerThatLostItsMemory) {
  RemoteStageOptions kept = options("ec:3");
  kept.run_dir = split_.file("run");
  RemoteStage stage(kept);
  const auto step = [&](RemoteStage& s, float scale) {
    const auto i = s.forward(torch::full({4, 128}, scale));
    s.backward(i, torch::ones_like(s.output(i)));
    s.step();
  };
  step(stage, 1);
  const std::string own = "mine";
  stage.save(std::as_bytes(std::span(own)));
  const auto saved = stage.weights();
  step(stage, 2);
  const auto after = stage.weights();
  split_.server(0).signal(SIGKILL);
  split_.start_server(0);
  EXPECT_THROW(step(stage, 3), RolledBack);
  EXPECT_EQ(stage.steps_done(), 1U);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(stage.saved().data()), stage.saved().size()), own);
  step(stage, 2);
  const auto again = stage.weights();
  for (const auto& [name, tensor] : after) EXPECT_TRUE(torch::equal(tensor, again.at(name))) << name;
  stage.leave();

  RemoteStage continued(kept);
  EXPECT_EQ(continued.steps_done(), 1U);
  const auto restored = continued.weights();
  for (const auto& [name, tensor] : saved) EXPECT_TRUE(torch::equal(tensor, restored.at(name))) << name;
  kept.optimizer = "adam";
  continued.leave();
  EXPECT_ANY_THROW(RemoteStage{kept}) << "another run than that of its folder";
}

// A client of its own making gets an answer to whatever it says, and the session lives on.
TEST_F(RemoteStageTest, ServerRefusesActionsThatDoNotFit) {
  cli::SecurityFlags flags;
  flags.tls = split_.file("tls");
  session::Servers servers({split_.address(0)}, cli::connect_config(flags), session::new_session_key());
  session::Peer peer(1, session::Peer::Role::kWorker, "server", servers.command_channel(1), transport::Timeout(20000));
  train::Plan plan;
  plan.model = "mlp";
  plan.data = data_spec();
  plan.place = {0, 1, 0};
  plan.cuts = {kFirst, kEnd};
  plan.codecs.resize(2);
  const auto refused = [&](const session::Command& command, const std::string& why) {
    peer.send(command);
    try {
      std::visit([&](const auto& one) { peer.recv<typename std::decay_t<decltype(one)>::Answer>(); }, command);
      ADD_FAILURE() << "expected: " << why;
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  };
  refused(session::ForwardCommand{0, 0, true, true, {0}}, "not configured");
  peer.send(session::ConfigureCommand{train::to_json(plan), 1});
  peer.recv<session::ConfigureReply>();
  refused(session::ForwardCommand{0, 0, true, true, {0}}, "no weights");
  for (std::size_t l = kFirst; l < kEnd; ++l) {
    session::LoadCommand load{l, l + 1 == kEnd, {}};
    for (const auto& item : local_.layers[l]->named_parameters())
      load.weights[local_.layers[l]->full_name(item.key())] = item.value().detach();
    peer.send(load);
    peer.recv<session::LoadReply>();
  }
  refused(session::BackwardCommand{0, 0}, "channels");
  const auto open = [&](std::uint64_t attempt) {
    peer.send(session::OpenChannelsCommand{attempt, {}});
    std::array links = {servers.data_channel(0, 1, attempt), servers.data_channel(1, 1, attempt)};
    peer.recv<session::OpenChannelsReply>();
    return links;
  };
  std::uint64_t attempt = 1;
  for (const auto& [command, why] : std::vector<std::pair<session::Command, std::string>>{
           {session::BackwardCommand{0, 0}, "has no forward that waits"},
           {session::ForwardCommand{7, 0, true, true, {0}}, "0 steps are done"},
           {session::ForwardCommand{0, 0xffffffffU, true, true, {0}}, "expected a number below"}}) {
    const auto links = open(++attempt);
    refused(command, why);
    EXPECT_ANY_THROW(links[1]->recv(transport::Timeout(20000))) << "who waits for a tensor hears that none comes";
  }
  refused(session::CommitCommand{0, {}}, "cannot be committed");
  peer.send(session::EndCommand{});
  peer.recv<session::EndReply>();
}

}  // namespace
}  // namespace epipe::serve
