// What a participant replies, also to a coordinator that is wrong, mad or malicious.
#include "epipe/session/worker_participant.h"

#include <gtest/gtest.h>

#include <fstream>

#include "epipe/session/timeline.h"
#include "epipe/train/metrics.h"
#include "epipe/transport/inproc/inproc.h"
#include "support/session_cases.h"
#include "support/temp_folder.h"

namespace epipe::session {
namespace {

using nlohmann::json;
using testing::TempFolder;

class Participant_ : public ::testing::Test {
 protected:
  ParticipantConfig config() {
    ParticipantConfig c;
    testing::make_trainers(c);
    c.checkpoints = folder_.file("checkpoints");
    c.timeout = std::chrono::milliseconds(100);
    c.open_channel = [this](const ChannelRequest&) {
      auto [here, there] = transport::make_inproc_link(8);
      peers_.push_back(std::move(there));
      return std::move(here);
    };
    return c;
  }
  ConfigureCommand configure() const { return testing::configure_command(case_); }
  LoadCommand load() const { return testing::load_command(case_); }
  static std::string error(const Reply& reply) {
    EXPECT_TRUE(std::holds_alternative<ErrorReply>(reply)) << name_of(reply);
    return std::holds_alternative<ErrorReply>(reply) ? std::get<ErrorReply>(reply).error : "";
  }

  const testing::SessionCase case_ = testing::small_case("none");
  TempFolder folder_;
  std::vector<std::unique_ptr<transport::Link>> peers_;
};

TEST(Timeline, OfAPeerKeepsItsEventsAndNothingElse) {
  Tracer tracer(10);
  tracer.add({1, "forward", "F 0 1", 1, 2, 7});
  tracer.add({104, "encode", "encode 0", 2, 3, 7});
  const auto events = timeline_from_json(timeline_json(tracer), 1, 2, 0.5);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].track, 1);
  EXPECT_EQ(events[0].category, "forward");
  EXPECT_EQ(events[0].name, "F 0 1");
  EXPECT_EQ(events[0].begin, 1.5);
  EXPECT_EQ(events[0].end, 2.5);
  EXPECT_EQ(events[0].step, 7U);
  EXPECT_EQ(events[1].track, 104);
  for (const char* const wrong : {
           "7",
           "{}",
           "[7]",
           "[[]]",
           R"([[1, "wait", "", 0, 1]])",       // no list of events
           R"([[0, "wait", "", 0, 1, 0]])",    // the client's own track
           R"([[108, "wait", "", 0, 1, 0]])",  // a cut that the run does not have
           R"([[1, "wait", "", 3, 2, 0]])",    // ends before it begins
           R"([[1, "wait", "", -5, 2, 0]])",   // before the run
           R"([[1e300, "wait", "", 0, 1, 0]])",
           R"([[1, "wait", "", 0, 1, "x"]])",
           R"([[1, 2, 3, 4, 5, 6]])",
       }) {
    EXPECT_TRUE(timeline_from_json(json::parse(wrong), 1, 2, 0).empty()) << wrong;
  }
  EXPECT_EQ(timeline_from_json(json::parse(R"([[1, "anything", "a name that is far too long to be one of ours", 0, 1, 0]])"), 1, 2, 0)
                .at(0)
                .name.size(),
            32U);
  EXPECT_EQ(timeline_from_json(json(std::vector<json>(kParticipantEvents + 9, {1, "wait", "", 0, 1, 0})), 1, 2, 0).size(),
            kParticipantEvents);
}

// A name that is cut within a letter would be no UTF-8, and the trace could not be written.
TEST(Timeline, NamesOfAPeerArePrintable) {
  const json events = {{1, "wait", std::string(31, 'x') + "\xc3\xa9\x1b[2J", 0, 1, 0}};
  const auto read = timeline_from_json(events, 1, 2, 0);
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].name, std::string(31, 'x') + "?");
  EXPECT_NO_THROW(train::trace_json(read, 2));
}

TEST_F(Participant_, SaysWhereItStands) {
  WorkerParticipant participant(config());
  const auto standing = [&] { return std::get<ConfigureReply>(participant.handle(configure())); };
  EXPECT_FALSE(standing().steps_done) << "it has no memory of this run";
  EXPECT_EQ(name_of(participant.handle(load())), "loaded");
  EXPECT_EQ(name_of(participant.handle(SaveCommand{})), "saved");
  EXPECT_EQ(standing().steps_done, 0U);
  EXPECT_EQ(standing().checkpoints.whole, std::vector<std::uint64_t>{0});
  EXPECT_TRUE(standing().checkpoints.damaged.empty());
  std::ofstream(folder_.file("checkpoints/step-000000000/model.safetensors")) << "no tensors";
  EXPECT_TRUE(standing().checkpoints.whole.empty()) << "what it offers is whole";
  EXPECT_EQ(standing().checkpoints.damaged, std::vector<std::uint64_t>{0});
}

TEST_F(Participant_, SavesNoMoreThanItMayKeep) {
  auto limited = config();
  limited.checkpoint_bytes = 100;
  WorkerParticipant participant(std::move(limited));
  participant.handle(configure());
  EXPECT_EQ(name_of(participant.handle(load())), "loaded");
  EXPECT_NE(error(participant.handle(SaveCommand{})).find("--state-quota of the server limits it"), std::string::npos);
}

TEST_F(Participant_, RefusesCommandsBeforeTheirTime) {
  WorkerParticipant participant(config());
  for (const Command& command : {Command(SaveCommand{}), Command(WeightsCommand{1}), Command(load()), Command(RestoreCommand{1})}) {
    EXPECT_NE(error(participant.handle(command)).find("was not configured yet"), std::string::npos) << name_of(command);
  }
  EXPECT_NE(error(participant.handle(ReplicaStepCommand{})).find("leads no replica"), std::string::npos);
  participant.handle(configure());
  EXPECT_NE(error(participant.handle(testing::open_channels_command())).find("no weights"), std::string::npos);
  participant.handle(load());
  EXPECT_NE(error(participant.handle(testing::commit_command(0))).find("cannot be committed"), std::string::npos);
}

// A step of a client that leaves rates open and says none, or says those of another run; an audit out of order, or of too much.
TEST_F(Participant_, RefusesRatesAndAuditsThatDoNotFit) {
  const testing::SessionCase open = testing::small_case("auto");
  WorkerParticipant participant(config());
  participant.handle(testing::configure_command(open));
  participant.handle(testing::load_command(open));
  const auto refused = [&](const Command& command) {
    participant.handle(testing::open_channels_command());
    return error(participant.handle(command));
  };
  StepCommand step = testing::step_command(open, 0, true);
  EXPECT_NE(refused(step).find("say bits per value at cut 0"), std::string::npos);
  step.id.rates = {{1, 1}};
  EXPECT_NE(refused(step).find("rates of 1 cuts, but the run has 2"), std::string::npos);
  AuditCommand audit;
  audit.batch.samples = {1};
  audit.id.chunks = 1;
  audit.id.terms = 1;
  audit.part.rates = {{1, 1, 1, 1}};
  audit.part.first = 1;
  EXPECT_NE(refused(audit).find("cannot go on with micro-batch 1"), std::string::npos);
  audit.part.first = 0;
  audit.part.rates = {{1, 1}};
  EXPECT_NE(refused(audit).find("rates for each of 2 cuts"), std::string::npos);
  audit.part.rates = {{0, 0, 0, 0}};
  EXPECT_NE(refused(audit).find("say bits per value at cut 0"), std::string::npos);
  audit.batch.samples.assign(11, 1);
  audit.id.chunks = 11;
  audit.part.rates.assign(11, {1, 1, 1, 1});
  EXPECT_NE(refused(audit).find("a step of 11 micro-batches, but the run has 10"), std::string::npos);
}

TEST_F(Participant_, GivesAndTakesTheWeightsOfItsOwnLayersOnly) {
  WorkerParticipant participant(config());
  participant.handle(configure());
  LoadCommand of_another = load();
  of_another.layer = 0;
  EXPECT_NE(error(participant.handle(of_another)).find("layer 0 is not run here"), std::string::npos);
  of_another.layer = ~std::size_t{0};
  EXPECT_NE(error(participant.handle(of_another)).find("is not run here"), std::string::npos);
  participant.handle(load());
  EXPECT_NE(error(participant.handle(WeightsCommand{3})).find("layer 3 is not run here"), std::string::npos);
  EXPECT_EQ(std::get<WeightsReply>(participant.handle(WeightsCommand{1})).weights.size(), load().weights.size());
}

TEST_F(Participant_, BeginsNothingBeforeItHasAllWeights) {
  WorkerParticipant participant(config());
  participant.handle(configure());
  LoadCommand not_the_last = load();
  not_the_last.last = false;
  const std::vector<Command> too_early = {testing::open_channels_command(), SaveCommand{}, WeightsCommand{1}, testing::commit_command(0)};
  for (const Command& command : too_early) {
    EXPECT_NE(error(participant.handle(command)).find("no weights"), std::string::npos) << name_of(command);
  }
  EXPECT_EQ(name_of(participant.handle(not_the_last)), "loaded");
  EXPECT_FALSE(participant.holds_run());
  for (const Command& command : too_early) {
    EXPECT_NE(error(participant.handle(command)).find("no weights"), std::string::npos) << name_of(command);
  }
  EXPECT_EQ(name_of(participant.handle(load())), "loaded");
  EXPECT_TRUE(participant.holds_run());
}

TEST_F(Participant_, NamesWhatIsWrongWithAPlan) {
  const auto refused = [&](const std::string& field, const json& value) {
    WorkerParticipant participant(config());
    ConfigureCommand command = configure();
    command.spec[field] = value;
    return error(participant.handle(command));
  };
  EXPECT_NE(refused("model", "no-such-model").find("no-such-model"), std::string::npos);
  EXPECT_NE(refused("chunks", 0).find("chunks is 0"), std::string::npos);
  EXPECT_NE(refused("cuts", "none").find("cuts has the wrong type"), std::string::npos);
  EXPECT_NE(refused("place", json({0, 5, 0})).find("worker"), std::string::npos);
  EXPECT_NE(refused("codecs", json::array()).find("do not match its cuts"), std::string::npos);
  EXPECT_NE(refused("precision", "fp8").find("precision is fp8, expected fp32, bf16, fp16"), std::string::npos);
  EXPECT_NE(refused("loss_scaling", "yes").find("loss_scaling has the wrong type"), std::string::npos);
  EXPECT_NE(refused("threads", -1).find("threads is -1"), std::string::npos);
  EXPECT_NE(refused("base_precision", "int4").find("base_precision is int4"), std::string::npos);
  EXPECT_NE(refused("frozen", "all").find("frozen has the wrong type"), std::string::npos);
  EXPECT_NE(refused("frozen", std::vector<int>(2000, 1)).find("more than 1024 entries"), std::string::npos);
  EXPECT_NE(refused("first_trained", -1).find("first_trained has the wrong type"), std::string::npos);
  EXPECT_NE(refused("reuse_activations", true).find("nothing is trained before the first cut"), std::string::npos);
  for (const char* const wrong : {"r=0", "r=1e300", "r=nan", "alpha=inf", "dropout=1", "targets=nothing", "x=1", "r=2"}) {
    EXPECT_NE(refused("lora", wrong).find("LoRA"), std::string::npos) << wrong << ": " << refused("lora", wrong);
  }
  EXPECT_NE(
      refused("data", {{"kind", "images"}, {"shape", {1 << 30}}, {"classes", 2}, {"vocabulary", 0}, {"regression", false}}).find("extent"),
      std::string::npos);
}

// Numbers of a peer are multiplied: none of these may overflow, nor make it allocate what no model needs.
TEST_F(Participant_, RefusesAPlanOfGiants) {
  const auto refused = [&](const std::string& model, const json& shape, const std::string& codec = "none") {
    WorkerParticipant participant(config());
    ConfigureCommand command = configure();
    auto& plan = command.spec;
    plan["model"] = model;
    plan["data"] = {{"kind", model.starts_with("roberta") || model.starts_with("hf") || model == "transformer" ? "text" : "images"},
                    {"shape", shape},
                    {"classes", 2},
                    {"vocabulary", 10},
                    {"regression", false},
                    {"next_token", false}};
    plan["codecs"] = std::vector<std::vector<std::string>>(2, {codec, codec});
    return error(participant.handle(command));
  };
  constexpr int kLarge = 1 << 20;
  EXPECT_NE(refused("mlp", {kLarge, kLarge, kLarge, kLarge}).find("values per sample"), std::string::npos) << "2^80 is 0 in 64 bits";
  EXPECT_NE(refused("mlp", {kLarge, kLarge, 1 << 12}).find("values per sample"), std::string::npos);
  EXPECT_NE(refused("mlp", {kLarge, 32}).find("at most 16777216 values"), std::string::npos);
  EXPECT_NE(refused("mlp", std::vector<int>(1000, 1)).find("more than 8 dims"), std::string::npos);
  EXPECT_NE(refused("cnn", {3, kLarge, kLarge}).find("values per sample"), std::string::npos);
  EXPECT_NE(refused("cnn", {3, 64, 64}, "conv:65536x64").find("is too large"), std::string::npos);
  EXPECT_NE(refused(R"(roberta:{"hidden_size":1048576,"num_attention_heads":1})", {8}).find("weights, got"), std::string::npos);
  EXPECT_NE(refused(R"(hf:{"model_type":"llama","hidden_size":1048576,"num_hidden_layers":1000})", {8}).find("at most 2^40 weights"),
            std::string::npos);
  EXPECT_NE(refused("mlp", {4}, std::string(5000, 'x')).find("longer than 4096 bytes"), std::string::npos);
}

TEST_F(Participant_, TellsItsClientNoPath) {
  ParticipantConfig c = config();
  std::vector<std::string> logged;
  c.log = [&](const std::string& error) { logged.push_back(error); };
  WorkerParticipant participant(std::move(c));
  participant.handle(configure());
  participant.handle(load());
  const std::string lost = error(participant.handle(RestoreCommand{77}));
  EXPECT_NE(lost.find("checkpoints/step-000000077"), std::string::npos) << lost;
  std::ofstream(folder_.file("checkpoints")) << "a file where a folder should be";
  const std::string unsaved = error(participant.handle(SaveCommand{}));
  EXPECT_NE(unsaved.find("cannot"), std::string::npos) << unsaved;
  for (const std::string& told : {lost, unsaved}) EXPECT_EQ(told.find(folder_.path()), std::string::npos) << told;
  ASSERT_EQ(logged.size(), 2U);
  for (const std::string& line : logged) EXPECT_NE(line.find(folder_.path()), std::string::npos) << line;
}

TEST_F(Participant_, RefusesWeightsThatDoNotFit) {
  WorkerParticipant participant(config());
  participant.handle(configure());
  LoadCommand wrong = load();
  wrong.weights.begin()->second = torch::zeros({7});
  EXPECT_NE(error(participant.handle(wrong)).find(wrong.weights.begin()->first), std::string::npos);
}

TEST_F(Participant_, ASecondPlanMustBeTheSame) {
  WorkerParticipant participant(config());
  participant.handle(configure());
  ConfigureCommand other = configure();
  other.spec["seed"] = 99;
  EXPECT_NE(error(participant.handle(other)).find("seed: 0 here, 99 there"), std::string::npos);
}

TEST_F(Participant_, ARestoreThatFindsNothingChangesNothing) {
  WorkerParticipant participant(config());
  participant.handle(configure());
  participant.handle(load());
  error(participant.handle(RestoreCommand{5}));
  EXPECT_EQ(std::get<ConfigureReply>(participant.handle(configure())).steps_done, 0U);
}

TEST_F(Participant_, StaysTheWorkerThatItIs) {
  WorkerParticipant participant(config());
  participant.handle(configure());
  ConfigureCommand other = configure();
  other.worker = 0;
  EXPECT_NE(error(participant.handle(other)).find("this is worker 1, not 0"), std::string::npos);
}

TEST_F(Participant_, ALostTensorAsksForAnotherConnection) {
  WorkerParticipant participant(config());
  participant.handle(configure());
  participant.handle(load());
  ASSERT_EQ(name_of(participant.handle(testing::open_channels_command())), "channels open");
  const Reply reply = participant.handle(testing::step_command(case_, 0, true));
  ASSERT_EQ(name_of(reply), "failed");
  EXPECT_TRUE(std::get<ErrorReply>(reply).retry) << std::get<ErrorReply>(reply).error;
}

// A client that says one thing and is gone when the answer comes.
class LeavingClient final : public transport::Link {
 public:
  explicit LeavingClient(const Command& command) : command_(to_bytes(command)) {}
  void send(Bytes) override { throw transport::ConnectionLost("it closed the link"); }
  Bytes recv(transport::Timeout) override { return command_; }
  void close() override {}

 private:
  Bytes command_;
};

TEST_F(Participant_, DoesNotMissAClientThatHasLeft) {
  for (const Command& last : {Command(LeaveCommand{}), Command(EndCommand{})}) {
    WorkerParticipant participant(config());
    LeavingClient client(last);
    EXPECT_NO_THROW(handle_commands(client, participant, transport::kNoTimeout)) << name_of(last);
    EXPECT_TRUE(participant.ended());
  }
  WorkerParticipant participant(config());
  LeavingClient client(ClockCommand{});
  EXPECT_THROW(handle_commands(client, participant, transport::kNoTimeout), transport::ConnectionLost);
}

// The schedule that a server admitted says how much memory a step takes.
TEST_F(Participant_, RefusesAStepOfMoreMicroBatchesThanPlanned) {
  WorkerParticipant participant(config());
  participant.handle(configure());
  participant.handle(load());
  participant.handle(testing::open_channels_command());
  StepCommand step = testing::step_command(case_, 0, true);
  step.batch.samples = {1, 2, 3};
  step.id.chunks = 3;
  EXPECT_NE(error(participant.handle(step)).find("3 micro-batches, but the run has 1"), std::string::npos);
}

}  // namespace
}  // namespace epipe::session
